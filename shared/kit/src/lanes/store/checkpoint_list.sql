-- lanes.checkpoint_list: how far one projection has applied each lane
select lane, epoch, next_offset, last_event_id, updated_at from consumer_checkpoint where projection = $1 order by lane
