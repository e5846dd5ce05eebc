-- command.operation: the verdict of one operation id and the relation as it is now
select c.video_id, c.desired_state, c.outcome, c.result_state, c.result_version, c.created_at,
       r.state, r.relation_version, r.state_changed_at, m.epoch
from shard_meta m
cross join lateral (
  select * from like_command c
  where c.user_id = $1 and c.operation_id = $2
    and c.op_time >= coalesce($3::timestamptz, '-infinity') and c.op_time <= coalesce($3::timestamptz, 'infinity')
  limit 1) c
left join like_relation r on r.user_id = c.user_id and r.video_id = c.video_id
