-- counter.partition_lock: the partition's lock in exclusive mode: no group is in flight, and none starts, until the transaction ends.
select pg_advisory_xact_lock($1, $2)
