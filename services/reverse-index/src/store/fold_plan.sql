-- reverse_index.fold_plan: for this transaction, probe indexes whatever the statistics say: they lag behind a fresh or growing table
set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local plan_cache_mode = force_generic_plan
