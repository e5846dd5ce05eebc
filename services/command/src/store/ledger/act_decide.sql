-- command.act_decide: a proposed act is approved or rejected, once
update risk_act set status = $2, approver = $3, decided_at = clock_timestamp() where act_id = $1 and status = 1 returning 1
