-- command.accounts_upsert: states of accounts; a higher version wins. At most one row per account
insert into account_state as kept (user_id, state, version, changed_at)
select * from unnest($1::text[], $2::smallint[], $3::bigint[], $4::timestamptz[])
on conflict (user_id) do update
set state = excluded.state, version = excluded.version, changed_at = excluded.changed_at
where kept.version < excluded.version
