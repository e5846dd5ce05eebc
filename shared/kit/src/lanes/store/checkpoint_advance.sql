-- lanes.checkpoint_advance: moves on, unless another owner has claimed the lane or it stands elsewhere
update consumer_checkpoint set next_offset = $6, last_event_id = $7, updated_at = now()
where projection = $1 and lane = $2 and owner_epoch = $3 and epoch = $4 and next_offset = $5
returning updated_at
