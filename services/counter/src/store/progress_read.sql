-- counter.progress_read: how far rows, and rows with views, have come, and whether the generation lacks something.
select
  done.pass, done.lanes, done.epochs, done.next_offsets,
  both_written.pass, both_written.lanes, both_written.epochs, both_written.next_offsets,
  exists (select from count_quarantine q where q.generation = $1 and q.closed_at is null)
from (select) as one
left join lateral (
  select p.pass, p.lanes, p.epochs, p.next_offsets from count_aggregation_pass p
  where p.generation = $1 and p.slice = $2 and p.completed_at is not null order by p.pass desc limit 1) as done on true
left join lateral (
  select max(p.pass) as pass, array_agg(p.lane order by p.lane) as lanes, array_agg(p.epoch order by p.lane) as epochs,
    array_agg(p.next_offset order by p.lane) as next_offsets
  from count_aggregator_position p where p.generation = $1 and p.slice = $2) as both_written on true
