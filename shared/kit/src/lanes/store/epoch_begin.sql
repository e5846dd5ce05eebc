-- lanes.epoch_begin: opens an epoch; no change is taken before it is served. Refused by a server that was started after the shard was
-- compared: what was put back may lack what was agreed upon
with opened as (
  update shard_meta set epoch = $2, status = 'REPAIRING'
  where epoch = $1 and status <> 'MOVED' and pg_postmaster_start_time() = $5 returning epoch)
insert into lane_epoch (epoch, first_seq, lost) select o.epoch, $3, $4 from opened o
