-- command.act_list: acts, newest first, after a key
select a.act_id, a.kind, a.status, a.reason, a.evidence, a.requester, a.approver, a.targets,
       (select count(*) from risk_act_target t where t.act_id = a.act_id and t.done),
       a.frozen_until, a.restores, a.created_at, a.applied_at, a.liked_before, a.counted_before, a.liked_after, a.counted_after
from risk_act a
where (a.created_at, a.act_id) < (coalesce($1::timestamptz, 'infinity'), coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'))
  and ($3::smallint = 0 or a.status = $3)
order by a.created_at desc, a.act_id desc
limit $4
