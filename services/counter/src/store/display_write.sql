-- counter.display_write: writes display rows; a row never goes back to an older pass.
insert into count_display_snapshot as kept (generation, video_id, raw, risk_hidden, policy_hidden, approximate, pass, generated_at)
select $1, r.video_id, r.raw, r.risk_hidden, r.policy_hidden, r.approximate, $2, $3
from unnest($4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[]) as r(video_id, raw, risk_hidden, policy_hidden, approximate)
on conflict (generation, video_id) do update set
  raw = excluded.raw, risk_hidden = excluded.risk_hidden, policy_hidden = excluded.policy_hidden,
  approximate = excluded.approximate, pass = excluded.pass, generated_at = excluded.generated_at
  where kept.pass <= excluded.pass
