-- content.follow_write: a follow as it is now; created_at is that of the latest follow
insert into follow as kept (follower_id, followee_id, version, created_at, deleted_at) values ($1, $2, $3, $4, $5)
on conflict (follower_id, followee_id) do update set version = excluded.version, deleted_at = excluded.deleted_at,
  created_at = case when excluded.deleted_at is null then excluded.created_at else kept.created_at end
where kept.version < excluded.version
