-- command.act_before: the figures an act began with, once
update risk_act set liked_before = $2, counted_before = $3 where act_id = $1 and liked_before is null
