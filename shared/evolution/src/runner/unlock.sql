-- evolution.unlock: gives the right back
select pg_advisory_unlock($1, hashtext($2))
