-- command.sweeps_of: sweeps of these users that are not finished
select count(*) from account_sweep s where s.user_id = any ($1::text[])
