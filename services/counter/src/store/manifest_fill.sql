-- counter.manifest_fill: the rows of a manifest that is being built.
insert into count_route_manifest_item (manifest_id, vbucket, partition, route_epoch)
select $1, item.vbucket, item.partition, item.route_epoch
from unnest($2::integer[], $3::text[], $4::bigint[]) as item(vbucket, partition, route_epoch)
