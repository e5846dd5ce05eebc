-- counter.route_clear: drops materialised routes that differ from the active manifest.
delete from count_bucket_route route where route.generation = $1 and not exists (
  select from count_route_manifest_item item where item.manifest_id = $2 and item.vbucket = route.vbucket
    and item.partition = route.partition and item.route_epoch = route.route_epoch)
