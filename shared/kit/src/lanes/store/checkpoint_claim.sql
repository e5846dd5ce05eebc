-- lanes.checkpoint_claim: makes a new owner the only one that may advance; a lane that was never read starts at 1
insert into consumer_checkpoint as kept (projection, lane, epoch, next_offset, last_event_id, owner_epoch, updated_at)
values ($1, $2, 0, 1, null, $3, now())
on conflict (projection, lane) do update set owner_epoch = excluded.owner_epoch
where kept.owner_epoch <= excluded.owner_epoch
returning lane, epoch, next_offset, last_event_id, updated_at
