-- command.act_target_done: a target is written
update risk_act_target set done = true where act_id = $1 and place = $2
