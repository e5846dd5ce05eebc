-- content.block_set: everyone an account blocks or is blocked by, and the version of that set
select coalesce((select version from block_set where user_id = $1), 0), m.epoch,
  array(select blocked_id from block where blocker_id = $1
        union select blocker_id from block where blocked_id = $1 limit $2)
from shard_meta m
