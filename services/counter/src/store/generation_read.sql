-- counter.generation_read: one generation.
select bucket_space_version, lanes, status, active_manifest_id from count_projection_generation where generation = $1
