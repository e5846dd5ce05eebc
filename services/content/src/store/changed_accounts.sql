-- content.changed_accounts: accounts changed after a number, in the order of their last change
select user_id, state, is_private, listable, likes_visible, greatest(version, m.epoch::bigint << 40), change_seq
from account, shard_meta m where change_seq > $1 and change_seq <= $3 order by change_seq limit $2
