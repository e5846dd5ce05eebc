-- lanes.shard_meta: what the shard is, and whether it is still on the server it was last known to live on. The timeline is read
-- off the name of the WAL file, because the control file lags.
select m.epoch, m.incarnation, coalesce(e.first_seq, 1), m.status, e.epoch is not null and e.served_at is null,
       coalesce(m.system_identifier <> (pg_control_system()).system_identifier
                or m.timeline_id <> ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer, false),
       pg_postmaster_start_time()
from shard_meta m left join lane_epoch e on e.epoch = m.epoch
