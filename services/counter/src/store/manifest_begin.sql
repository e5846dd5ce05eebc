-- counter.manifest_begin: a manifest to be filled, sealed and then never changed.
insert into count_route_manifest (generation, bucket_space_version, status) values ($1, $2, 'BUILDING') returning manifest_id
