-- lanes.hold_take: keeps the outbox from a number on for a time
insert into lane_hold as h (name, owner, reason, from_seq, expires_at)
values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))
on conflict (name) do update
  set owner = excluded.owner, reason = excluded.reason, from_seq = excluded.from_seq, expires_at = excluded.expires_at
returning h.expires_at
