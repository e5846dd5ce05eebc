-- evolution.applied: what was applied, in order
select name, checksum from schema_migration order by name
