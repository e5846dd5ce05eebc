-- lanes.checkpoint_move: goes on elsewhere without having applied a message there; refused like an advance
update consumer_checkpoint set epoch = $6, next_offset = $7, last_event_id = null, updated_at = now()
where projection = $1 and lane = $2 and owner_epoch = $3 and epoch = $4 and next_offset = $5
returning updated_at
