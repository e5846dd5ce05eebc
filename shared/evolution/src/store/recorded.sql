-- evolution.recorded: everything applied to a schema, in order
select name, checksum from schema_migration order by name collate "C"
