-- content.pairs: how one account stands to many others
select wanted.id,
  exists (select from follow f where f.follower_id = $1 and f.followee_id = wanted.id and f.deleted_at is null),
  exists (select from follow f where f.follower_id = wanted.id and f.followee_id = $1 and f.deleted_at is null),
  exists (select from block b where b.blocker_id = $1 and b.blocked_id = wanted.id)
    or exists (select from block b where b.blocker_id = wanted.id and b.blocked_id = $1)
from unnest($2::text[]) as wanted(id)
