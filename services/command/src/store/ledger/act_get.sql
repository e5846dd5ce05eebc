-- command.act_get: one act
select a.act_id, a.kind, a.status, a.reason, a.evidence, a.requester, a.approver, a.targets,
       (select count(*) from risk_act_target t where t.act_id = a.act_id and t.done),
       a.frozen_until, a.restores, a.created_at, a.applied_at, a.liked_before, a.counted_before, a.liked_after, a.counted_after
from risk_act a where a.act_id = $1
