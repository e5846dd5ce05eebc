-- command.act_insert: a new act with its targets; an id that is known changes nothing
with made as (
  insert into risk_act (act_id, kind, status, reason, evidence, requester, frozen_until, restores, targets)
  values ($1, $2, $3, $4, $5, $6, $7, $8, cardinality($9::text[]))
  on conflict do nothing
  returning act_id
), targets as (
  insert into risk_act_target (act_id, place, user_id, video_id)
  select m.act_id, t.place, t.user_id, t.video_id
  from made m, unnest($9::text[], $10::text[]) with ordinality as t(user_id, video_id, place)
)
select count(*) from made
