-- content.post_write: a video as it is now
insert into post as kept (post_id, author_id, content, status, visibility, likers_visible, count_visible, version,
  change_seq, created_at, updated_at, deleted_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
on conflict (post_id) do update set content = excluded.content, status = excluded.status,
  visibility = excluded.visibility, likers_visible = excluded.likers_visible, count_visible = excluded.count_visible,
  version = excluded.version, change_seq = excluded.change_seq, updated_at = excluded.updated_at,
  deleted_at = excluded.deleted_at
where kept.version < excluded.version
