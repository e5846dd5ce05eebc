-- counter.changed_videos: videos whose buckets groups of these offsets wrote, with the number of bucket writes.
select changed.video_id, count(*)
from unnest($2::text[], $3::integer[], $4::bigint[], $5::integer[], $6::bigint[]) as span(lane, from_epoch, from_offset, to_epoch, to_offset)
cross join lateral (
  select r.videos from count_event_receipt r
  where r.generation = $1 and r.lane = span.lane
    and (r.epoch, r.last_offset) >= (span.from_epoch, span.from_offset)
    and (r.epoch, r.first_offset) < (span.to_epoch, span.to_offset) offset 0) as receipt
cross join lateral unnest(receipt.videos) as changed(video_id)
group by changed.video_id
