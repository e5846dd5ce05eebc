-- counter.bucket_space_read: the words of one bucket space.
select hash_algorithm, hash_seed, key_encoding, vbuckets from count_bucket_space where version = $1
