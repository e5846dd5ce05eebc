-- counter.bucket_space_add: states a bucket space unless one of that version is there; the stored words win.
insert into count_bucket_space (version, hash_algorithm, hash_seed, key_encoding, vbuckets)
values ($1, $2, $3, $4, $5)
on conflict (version) do nothing
