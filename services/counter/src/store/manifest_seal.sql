-- counter.manifest_seal: seals a manifest whose rows were read back and verified.
update count_route_manifest set status = 'SEALED', row_count = $2, checksum = $3, sealed_at = now()
where manifest_id = $1 and status = 'BUILDING'
