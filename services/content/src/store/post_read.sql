-- content.post_read: one video
select post_id, author_id, content, status, visibility, likers_visible, count_visible,
  greatest(version, (select m.epoch::bigint << 40 from shard_meta m)), created_at, updated_at, deleted_at
from post where post_id = $1
