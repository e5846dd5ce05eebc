-- evolution.session: whether this session holds the runner's lock, and which transaction it is in
select
    exists (
        select from pg_locks
        where locktype = 'advisory' and granted and objsubid = 1 and pid = pg_backend_pid()
            and database = (select oid from pg_database where datname = current_database())
            and (classid::bigint << 32) | objid::bigint = $1
    ),
    pg_current_xact_id()::text
