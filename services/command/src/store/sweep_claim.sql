-- command.sweep_claim: the sweep that has waited longest and nobody is at work on, for a while ours
update account_sweep s set claimed_till = now() + $1 * interval '1 millisecond'
where s.user_id = (
  select d.user_id from account_sweep d where d.claimed_till < now() order by d.requested_at limit 1 for update skip locked)
returning s.user_id, s.request, s.phase
