-- content.account_policies: policies of many accounts
select a.user_id, a.state, a.is_private, a.listable, a.likes_visible, greatest(a.version, m.epoch::bigint << 40)
from shard_meta m, unnest($1::text[]) as wanted(id)
join lateral (select * from account where user_id = wanted.id offset 0) a on true
