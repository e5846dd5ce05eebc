-- evolution.lock: the right to migrate a schema, held by the session
select pg_try_advisory_lock($1, hashtext($2))
