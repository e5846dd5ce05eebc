-- command.act_claim: the running act that nobody is at work on, for a while ours
update risk_act a set claimed_till = clock_timestamp() + $1 * interval '1 millisecond'
where a.act_id = (
  select d.act_id from risk_act d where d.status = 2 and d.claimed_till < clock_timestamp()
  order by d.claimed_till limit 1 for update skip locked)
returning a.act_id, a.kind, a.restores, a.frozen_until, (select o.kind from risk_act o where o.act_id = a.restores), a.liked_before is null
