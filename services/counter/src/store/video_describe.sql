-- counter.video_describe: the virtual buckets of one video in this partition, each beside its LIKED relations, at one moment.
with liked as (
  select p.vbucket, count(*) as relations from like_count_projection p
  where p.generation = $1 and p.video_id = $2 and p.state = 1 group by p.vbucket)
select coalesce(b.vbucket, liked.vbucket), coalesce(b.active_count, 0), coalesce(b.risk_hidden_count, 0), coalesce(b.policy_hidden_count, 0),
  coalesce(b.bucket_version, 0), b.updated_at, coalesce(liked.relations, 0)
from (select * from video_like_count_vbucket where generation = $1 and video_id = $2) b
full join liked on liked.vbucket = b.vbucket
order by 1
