-- counter.position_write: advances the position of a slice; never back.
insert into count_aggregator_position as kept (generation, slice, lane, epoch, next_offset, pass, updated_at)
select $1, $2, next.lane, next.epoch, next.next_offset, $3, now()
from unnest($4::text[], $5::integer[], $6::bigint[]) as next(lane, epoch, next_offset)
order by next.lane
on conflict (generation, slice, lane) do update
  set epoch = excluded.epoch, next_offset = excluded.next_offset, pass = excluded.pass, updated_at = excluded.updated_at
  where (kept.epoch, kept.next_offset) < (excluded.epoch, excluded.next_offset)
