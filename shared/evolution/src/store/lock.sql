-- evolution.lock: waits until this session is the only runner of a schema
select pg_advisory_lock($1)
