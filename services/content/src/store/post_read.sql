-- content.post_read: one video
select post_id, author_id, content, status, visibility, likers_visible, count_visible, version, created_at, updated_at,
  deleted_at
from post where post_id = $1
