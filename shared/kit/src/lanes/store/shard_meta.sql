-- lanes.shard_meta: epoch and incarnation of the shard
select epoch, incarnation from shard_meta
