-- counter.manifest_find: a sealed manifest of a generation, the newest.
select manifest_id from count_route_manifest where generation = $1 and status = 'SEALED' order by manifest_id desc limit 1
