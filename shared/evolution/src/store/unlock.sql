-- evolution.unlock: lets the next runner in; false when this session did not hold the lock
select pg_advisory_unlock($1)
