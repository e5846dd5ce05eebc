-- evolution.record: says that a migration is applied, in its transaction
insert into schema_migration (name, checksum) values ($1, $2)
