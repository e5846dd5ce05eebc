-- content.posts_by_author: an author's videos, newest first; others than the author see what is published and meant for them
select post_id, author_id, content, status, visibility, likers_visible, count_visible,
  greatest(version, (select m.epoch::bigint << 40 from shard_meta m)), created_at, updated_at, deleted_at
from post
where author_id = $1 and deleted_at is null and (created_at, post_id) < ($2, $3)
  and ($4 or (status = 5 and (visibility = 1 or ($5 and visibility = 2))))
order by created_at desc, post_id desc limit $6
