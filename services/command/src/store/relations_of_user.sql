-- command.relations_of_user: one user's relations to many videos, in their order; one index probe per video
select r.state, r.relation_version, r.state_changed_at, m.epoch
from shard_meta m
cross join unnest($2::text[]) with ordinality as v(video_id, place)
left join lateral (
  select r.state, r.relation_version, r.state_changed_at from like_relation r
  where r.user_id = $1 and r.video_id = v.video_id offset 0) r on true
order by v.place
