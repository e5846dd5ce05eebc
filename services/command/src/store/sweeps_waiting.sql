-- command.sweeps_waiting: sweeps that are not finished, and how long the oldest waits in seconds
select count(*), coalesce(extract(epoch from now() - min(requested_at)), 0)::float8 from account_sweep
