-- content.shard_now: epoch, and the time of this transaction's changes
select epoch, clock_timestamp() from shard_meta
