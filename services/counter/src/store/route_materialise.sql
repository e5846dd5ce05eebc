-- counter.route_materialise: writes the routes of the active manifest that are not there.
insert into count_bucket_route (generation, vbucket, partition, route_epoch)
select $1, item.vbucket, item.partition, item.route_epoch from count_route_manifest_item item where item.manifest_id = $2
on conflict (generation, vbucket) do nothing
