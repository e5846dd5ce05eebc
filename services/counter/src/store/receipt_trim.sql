-- counter.receipt_trim: drops the oldest receipts of a lane that lie below the position and outlived the trace window. Looks at no
-- more of them than it may drop: they lie in the order in which they were applied, or nearly.
delete from count_event_receipt where receipt_id in (
  select oldest.receipt_id from (
    select r.receipt_id, r.applied_at from count_event_receipt r
    where r.generation = $1 and r.lane = $2 and (r.epoch, r.last_offset) < ($3::integer, $4::bigint)
    order by r.epoch, r.last_offset limit $6) as oldest
  where oldest.applied_at < $5)
