-- counter.receipt_trim: drops some receipts of a lane that lie below the position and are older than the trace window.
delete from count_event_receipt where receipt_id in (
  select r.receipt_id from count_event_receipt r
  where r.generation = $1 and r.lane = $2 and (r.epoch, r.last_offset) < ($3::integer, $4::bigint) and r.applied_at < $5
  order by r.epoch, r.last_offset limit $6)
