-- counter.bucket_sums: sums of some videos over the virtual buckets this partition owns ($3 is their bit string).
select asked.video_id, s.raw, s.risk_hidden, s.policy_hidden, s.quarantined
from unnest($2::text[]) as asked(video_id)
cross join lateral (
  select sum(b.active_count)::bigint as raw, sum(b.risk_hidden_count)::bigint as risk_hidden,
    sum(b.policy_hidden_count)::bigint as policy_hidden, bool_or(b.quarantined_at is not null) as quarantined
  from video_like_count_vbucket b
  where b.generation = $1 and b.video_id = asked.video_id and get_bit($3::bytea, b.vbucket) = 1) as s
where s.raw is not null
