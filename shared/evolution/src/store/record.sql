-- evolution.record: one migration is applied
insert into schema_migration (name, checksum) values ($1, $2)
