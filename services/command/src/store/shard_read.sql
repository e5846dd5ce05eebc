-- command.shard_read: what the shard says about itself
select m.system_identifier, m.timeline_id, c.hash_algorithm, c.hash_seed, c.key_encoding, c.shards, c.shard
from shard_meta m, shard_contract c
