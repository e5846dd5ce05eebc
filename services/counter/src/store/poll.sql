-- counter.poll: durable checkpoints of a projection and the manifest its buckets are routed by, at one moment.
select g.active_manifest_id, c.lane, c.epoch, c.next_offset
from count_projection_generation g
left join consumer_checkpoint c on c.projection = $2
where g.generation = $1
