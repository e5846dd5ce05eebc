-- lanes.epoch_end: the shard serves in its new epoch, on the server that answers. Refused by a server that was started since: what was
-- put back may lack what was stated again
with served as (
  update lane_epoch e set served_at = clock_timestamp(), restated = $2
  from shard_meta m
  where e.epoch = $1 and m.epoch = $1 and m.status = 'REPAIRING' and pg_postmaster_start_time() = $3
  returning e.epoch)
update shard_meta m
set status = 'SERVING', system_identifier = (pg_control_system()).system_identifier,
    timeline_id = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
from served s where m.epoch = s.epoch
