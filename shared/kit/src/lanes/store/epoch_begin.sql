-- lanes.epoch_begin: opens an epoch; no change is taken before it is served
with opened as (
  update shard_meta set epoch = $2, status = 'REPAIRING' where epoch = $1 and status <> 'MOVED' returning epoch)
insert into lane_epoch (epoch, first_seq, lost) select o.epoch, $3, $4 from opened o
