-- evolution.table: the record of what was applied to a schema
create table if not exists schema_migration (
    name text primary key,
    checksum text not null,
    applied_at timestamptz not null default now()
)
