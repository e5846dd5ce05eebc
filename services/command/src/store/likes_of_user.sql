-- command.likes_of_user: what a user likes, newest first, after a key
select r.video_id, r.relation_version, r.state_changed_at, m.epoch
from shard_meta m, like_relation r
where r.user_id = $1 and r.state = $2
  and (r.state_changed_at, r.video_id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
order by r.state_changed_at desc, r.video_id desc
limit $5
