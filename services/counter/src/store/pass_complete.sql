-- counter.pass_complete: completes every pass up to this one, at this vector.
update count_aggregation_pass set completed_at = now() where generation = $1 and slice = $2 and pass <= $3 and completed_at is null
