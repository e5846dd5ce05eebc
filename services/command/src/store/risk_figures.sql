-- command.risk_figures: likes of users, or of users on videos, and those of them that count
select count(*), count(*) filter (where r.hidden_reasons = 0)
from (select distinct t.user_id, t.video_id from unnest($1::text[], $2::text[]) as t(user_id, video_id)) t
join lateral (
  select r.hidden_reasons from like_relation r
  where r.user_id = t.user_id and r.state = 1 and t.video_id in ('', r.video_id) offset 0) r on true
