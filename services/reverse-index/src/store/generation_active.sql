-- reverse_index.generation_active: the contract of the generation that is written and served
select generation, hash_algorithm, hash_seed, key_encoding, reverse_shards, parts, lanes
from reverse_index_generation where status = 'ACTIVE'
