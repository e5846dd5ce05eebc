-- lanes.lock: the shard's lock, for the transaction
select pg_advisory_xact_lock($1, $2)
