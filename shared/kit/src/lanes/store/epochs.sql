-- lanes.epochs: all epochs of the shard
select epoch, first_seq, began_at, served_at, lost, restated from lane_epoch order by epoch
