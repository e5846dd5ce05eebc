-- command.lock_shard: the shard's lock for this transaction, as a statement of its own
select pg_advisory_xact_lock($1, $2)
