-- counter.bootstrap_lock: one process at a time states the first contracts; held until the transaction ends.
select pg_advisory_xact_lock($1, $2)
