-- reverse_index.generation_lock: one process at a time freezes a generation; readers go on
lock table reverse_index_generation in share row exclusive mode
