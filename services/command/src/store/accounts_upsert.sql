-- command.accounts_upsert: states of accounts; a higher version wins, and a changed state asks for a sweep. At most one row per account
with written as (
  insert into account_state as kept (user_id, state, version, changed_at)
  select * from unnest($1::text[], $2::smallint[], $3::bigint[], $4::timestamptz[])
  on conflict (user_id) do update
  set state = excluded.state, version = excluded.version, changed_at = excluded.changed_at
  where kept.version < excluded.version
  returning new.user_id, new.state, coalesce(old.state, 2) as state_before
)
insert into account_sweep as asked (user_id)
select w.user_id from written w where w.state <> w.state_before
on conflict (user_id) do update
set request = asked.request + 1, requested_at = now(), claimed_till = '-infinity', changed = 0, phase = 1, after_video = ''
