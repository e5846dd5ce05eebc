-- counter.generation_activate: compare-and-set from a shadow without routes to the active generation under a sealed manifest.
update count_projection_generation g set status = 'ACTIVE', active_manifest_id = $2, status_changed_at = now()
where g.generation = $1 and g.status = 'SHADOW' and g.active_manifest_id is null
  and exists (select from count_route_manifest m where m.manifest_id = $2 and m.generation = $1 and m.status = 'SEALED')
