-- content.changed_posts: videos changed after a number, in the order of their last change
select post_id, author_id, p.status, visibility, likers_visible, count_visible,
  greatest(version, m.epoch::bigint << 40), deleted_at is not null, change_seq
from post p, shard_meta m where change_seq > $1 and change_seq <= $3 order by change_seq limit $2
