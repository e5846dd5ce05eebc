-- content.account_read: one account
select user_id, username, state, is_private, listable, likes_visible,
  greatest(version, (select m.epoch::bigint << 40 from shard_meta m)), deleted_at, restore_state
from account where user_id = $1
