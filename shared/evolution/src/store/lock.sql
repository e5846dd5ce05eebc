-- evolution.lock: makes this session the only runner of a schema; false while another one is
select pg_try_advisory_lock($1)
