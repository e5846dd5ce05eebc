-- counter.display_read: display rows of some videos, in the order asked; nulls where there is none.
select s.raw, s.risk_hidden, s.policy_hidden, s.approximate, s.pass, s.generated_at
from unnest($2::text[]) with ordinality as asked(video_id, place)
left join lateral (
  select d.raw, d.risk_hidden, d.policy_hidden, d.approximate, d.pass, d.generated_at
  from count_display_snapshot d where d.generation = $1 and d.video_id = asked.video_id offset 0) as s on true
order by asked.place
