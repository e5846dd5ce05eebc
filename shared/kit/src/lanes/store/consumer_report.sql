-- lanes.consumer_report: how far a consumer is; it never goes back
update lane_consumer set
  owner = $2, reported_at = clock_timestamp(), epoch = greatest(epoch, $3),
  next_seq = case when $3 > epoch then $4 when $3 = epoch then greatest(next_seq, $4) else next_seq end
where name = $1
returning reported_at + ttl
