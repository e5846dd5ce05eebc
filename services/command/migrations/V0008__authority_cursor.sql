-- How far the shard has read what the authority says has changed. Only a pass that read to the end moves it.
create table authority_cursor (
  singleton  boolean primary key default true check (singleton),
  cursor     text not null,
  read_at    timestamptz not null default now()
);
