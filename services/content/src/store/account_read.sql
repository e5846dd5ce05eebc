-- content.account_read: one account
select user_id, username, state, is_private, listable, likes_visible, version, deleted_at, restore_state
from account where user_id = $1
