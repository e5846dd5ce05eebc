-- command.shard_watermark: where the shard stands, in one snapshot
select m.epoch, m.incarnation, coalesce((select max(o.seq) from outbox o), 0), m.status,
       case when m.barrier_until > clock_timestamp() then m.barrier_until end, clock_timestamp()
from shard_meta m
