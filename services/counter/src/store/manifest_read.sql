-- counter.manifest_read: what a sealed manifest says about its rows.
select row_count, checksum from count_route_manifest where manifest_id = $1 and generation = $2 and status = 'SEALED'
