-- command.shard_register: states what a new shard is; a shard that was stated before stays as it is
with meta as (
  insert into shard_meta (incarnation, system_identifier, timeline_id) values (gen_random_uuid(), $1, $2)
  on conflict do nothing)
insert into shard_contract (hash_algorithm, hash_seed, key_encoding, shards, shard) values ($3, $4, $5, $6, $7)
on conflict do nothing
