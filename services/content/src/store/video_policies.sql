-- content.video_policies: policies of many videos, without their texts
select p.post_id, p.author_id, p.status, p.visibility, p.likers_visible, p.count_visible,
  greatest(p.version, m.epoch::bigint << 40), p.deleted_at is not null
from shard_meta m, unnest($1::text[]) as wanted(id)
join lateral (select * from post where post_id = wanted.id offset 0) p on true
