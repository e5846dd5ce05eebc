-- counter.manifest_items: the rows of a manifest, by vbucket.
select vbucket, partition, route_epoch from count_route_manifest_item where manifest_id = $1 order by vbucket
