-- One relation shard. Ids compare by bytes (collate "C"), as they do in the service; fixed-width columns come first, so that
-- look-ups read them without walking over text.

-- The fact: does a user like a video now. UNLIKED rows stay as tombstones. State codes: 1 LIKED, 2 UNLIKED.
create table like_relation (
  relation_version        bigint not null check (relation_version > 0),
  state_changed_at        timestamptz not null,     -- of the transaction that changed the state; grows with every change
  state_seq               bigint not null,          -- outbox number of the last state change, and
  transition_window_start timestamptz not null,     -- since when transition_count counts
  created_at              timestamptz not null,
  updated_at              timestamptz not null,
  state_epoch             integer not null,         -- the epoch that number belongs to
  transition_count        integer not null,
  state                   smallint not null check (state in (1, 2)),
  cause                   smallint not null,        -- why it changed last, as domain::relation::Cause numbers it
  user_id                 text collate "C" not null,
  video_id                text collate "C" not null,
  last_operation_id       text collate "C" not null,
  primary key (user_id, video_id)
);
create index like_relation_list on like_relation (user_id, state, state_changed_at desc, video_id desc);

-- Verdicts by operation id. op_time is the time a dated id (UUIDv7) tells itself, so that the same id always meets the same
-- partition; for other ids the start of the week of the commit, so that within a partition the key refuses a second row.
-- Partitions are weeks (Monday, UTC), made ahead and dropped by the maintenance task. There is no default partition: a
-- missing week must fail, not hide.
create table like_command (
  op_time         timestamptz not null,
  result_version  bigint not null,
  base_version    bigint,
  client_sequence bigint,                           -- the bits of an unsigned number; kept for support, never for order
  created_at      timestamptz not null,             -- when the verdict was committed
  desired_state   smallint not null,
  outcome         smallint not null,                -- as domain::decide::Outcome numbers it
  result_state    smallint not null,
  user_id         text collate "C" not null,
  operation_id    text collate "C" not null,
  video_id        text collate "C" not null,
  device_hash     bytea,                            -- first 16 bytes of SHA-256; the device id itself is not kept
  primary key (user_id, operation_id, op_time)
) partition by range (op_time);

-- Changes that wait for publication, and the log behind the stream. Rows are never updated; seq is dense and in commit order.
create table outbox (
  seq              bigint not null,
  relation_version bigint not null,
  state_changed_at timestamptz not null,
  created_at       timestamptz not null,
  event_id         uuid not null,
  epoch            integer not null,
  state            smallint not null,
  previous_state   smallint not null,
  cause            smallint not null,
  user_id          text collate "C" not null,
  video_id         text collate "C" not null,
  operation_id     text collate "C" not null,
  primary key (seq)
) partition by range (seq);

-- Evidence of publication: insert-only, one row per published range.
create table outbox_publication (
  from_seq    bigint not null check (from_seq > 0),
  to_seq      bigint primary key,
  stream      text not null,
  from_offset bigint not null,
  acked_at    timestamptz not null default now(),
  check (to_seq >= from_seq)
);

-- What the shard knows about itself. Changed only under the shard's lock.
create table shard_meta (
  singleton         boolean primary key default true check (singleton),
  epoch             integer not null default 0 check (epoch >= 0),
  incarnation       uuid not null,
  system_identifier bigint not null,                -- of the PostgreSQL server the shard was last known to live on
  timeline_id       integer not null,
  status            text not null default 'SERVING' check (status in ('SERVING', 'REPAIRING', 'MOVED')),
  barrier_token     uuid,                           -- while a barrier stands, commands without a verdict are refused
  barrier_until     timestamptz,
  created_at        timestamptz not null default now(),
  check ((barrier_token is null) = (barrier_until is null))
);

-- Which users belong here. Written once; a process whose configuration disagrees refuses to start.
create table shard_contract (
  singleton      boolean primary key default true check (singleton),
  hash_algorithm text not null,
  hash_seed      bigint not null,                   -- the 64 bits of an unsigned seed
  key_encoding   text not null,
  shards         integer not null check (shards > 0),
  shard          integer not null check (shard >= 0 and shard < shards),
  created_at     timestamptz not null default now()
);

-- State of accounts, as the authority's lane told it. Written under the shard's lock, read by every batch after it has the
-- lock. Codes are those of likewise.policy.v1.AccountState; 2 is ACTIVE. An account nobody spoke of is taken as active.
create table account_state (
  version    bigint not null,
  changed_at timestamptz not null,
  state      smallint not null,
  user_id    text collate "C" primary key
);

-- Standard tables of a consuming schema.
create table lease (
  name       text primary key,
  owner      uuid not null,
  epoch      bigint not null,
  expires_at timestamptz not null
);
create table consumer_checkpoint (
  projection    text not null,
  lane          text not null,
  epoch         integer not null,
  next_offset   bigint not null,
  last_event_id uuid,
  owner_epoch   bigint not null,
  updated_at    timestamptz not null,
  primary key (projection, lane)
) with (fillfactor = 50);

-- The newest owner of each consumed lane: an older one cannot write any more.
create table consumer_fence (
  projection  text not null,
  lane        text not null,
  owner_epoch bigint not null,
  primary key (projection, lane)
);

-- Messages that could not be understood, with their bytes and the reason. A row is open until closed_at is set.
create table consumer_quarantine (
  projection  text not null,
  lane        text not null,
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
