-- reverse_index.page: the next likers of some shards of a video, each shard behind its own key; two index ranges per shard
select wanted.reverse_shard, liker.liked_at, liker.user_id
from unnest($3::integer[], $4::timestamptz[], $5::text[]) as wanted(reverse_shard, liked_at, user_id)
cross join lateral (
  select one.liked_at, one.user_id from (
    (select o.liked_at, o.user_id from like_reverse_order o
     where o.generation = $1 and o.video_id = $2 and o.reverse_shard = wanted.reverse_shard
       and o.liked_at = wanted.liked_at and o.user_id > wanted.user_id
     order by o.user_id limit $6)
    union all
    (select o.liked_at, o.user_id from like_reverse_order o
     where o.generation = $1 and o.video_id = $2 and o.reverse_shard = wanted.reverse_shard
       and o.liked_at < coalesce(wanted.liked_at, 'infinity')
     order by o.liked_at desc, o.user_id limit $6)) as one
  order by one.liked_at desc, one.user_id limit $6) as liker
order by wanted.reverse_shard, liker.liked_at desc, liker.user_id
