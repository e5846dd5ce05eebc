-- command.act_applied: an act is carried out; the one it undoes stands no more
with finished as (
  update risk_act set status = 3, applied_at = clock_timestamp(), liked_after = $2, counted_after = $3
  where act_id = $1 and status = 2
  returning restores)
update risk_act o set status = 5 from finished a where o.act_id = a.restores
