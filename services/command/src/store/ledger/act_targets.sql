-- command.act_targets: targets of an act in their order
select t.place, t.user_id, t.video_id, t.done from risk_act_target t where t.act_id = $1 order by t.place
