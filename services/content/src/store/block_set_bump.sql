-- content.block_set_bump: the next version of an account's block set, never below the epoch's floor
insert into block_set as kept (user_id, version) values ($1, $2::bigint + 1)
on conflict (user_id) do update set version = greatest(kept.version, $2) + 1
returning version
