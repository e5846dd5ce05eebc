-- reverse_index.generation_add: freezes a contract
insert into reverse_index_generation
  (generation, hash_algorithm, hash_seed, key_encoding, reverse_shards, parts, lanes, status)
values ($1, $2, $3, $4, $5, $6, $7, 'ACTIVE')
