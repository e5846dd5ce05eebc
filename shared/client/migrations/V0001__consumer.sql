-- What a consumer keeps beside its own tables; said again at each start it changes nothing.
create table if not exists lease (
  name       text collate "C" primary key,
  owner      uuid not null,
  epoch      bigint not null,
  expires_at timestamptz not null
);
create table if not exists consumer_checkpoint (
  projection    text collate "C" not null,
  lane          text collate "C" not null,
  epoch         integer not null,
  next_offset   bigint not null,
  last_event_id uuid,
  owner_epoch   bigint not null,
  updated_at    timestamptz not null,
  primary key (projection, lane)
) with (fillfactor = 50);
-- How far the fold is, written in the fold's own transaction.
create table if not exists consumer_folded (
  projection  text collate "C" not null,
  lane        text collate "C" not null,
  owner_epoch bigint not null,
  epoch       integer not null default 0,
  next_offset bigint not null default 1,
  primary key (projection, lane)
) with (fillfactor = 50);
-- Messages that could not be understood. A row is closed by folding its relation as the query service tells it.
create table if not exists consumer_quarantine (
  projection  text collate "C" not null,
  lane        text collate "C" not null,
  epoch       integer not null,
  offset_seq  bigint not null,
  event_id    uuid not null,
  schema_name text not null,
  payload     bytea not null,
  reason      text not null,
  created_at  timestamptz not null default now(),
  closed_at   timestamptz,
  primary key (projection, lane, epoch, offset_seq)
);
