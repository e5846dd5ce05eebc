-- reverse index metadata: frozen contracts of its generations, where their parts stand, and how far they have come.

-- A frozen contract: which reverse shard a user belongs to, and which part holds a shard of a video. Both are slots of the
-- same named hash with the same seed and key encoding: reverse_shard = hash(user) mod reverse_shards, part = hash(video,
-- reverse_shard in decimal digits) mod parts. Another contract is another generation; what is stored here wins over settings.
create table reverse_index_generation (
  generation        integer primary key check (generation > 0),
  hash_algorithm    text not null,
  hash_seed         bigint not null,                -- the 64 bits of an unsigned seed
  key_encoding      text not null,
  reverse_shards    integer not null check (reverse_shards between 1 and 32),
  parts             integer not null check (parts between 1 and 256),
  lanes             integer not null check (lanes > 0),   -- relation shards it consumes
  status            text not null check (status in ('SHADOW', 'ACTIVE', 'RETAINED', 'FAILED')),
  created_at        timestamptz not null default now(),
  status_changed_at timestamptz not null default now()
);
create unique index reverse_index_generation_active on reverse_index_generation (status) where status = 'ACTIVE';

-- The part map. The incarnation must equal the part's own, so that a wrong server address is refused instead of written to.
create table reverse_index_part (
  generation  integer not null references reverse_index_generation,
  part        integer not null check (part >= 0),
  server      text not null,
  schema_name text not null check (schema_name ~ '^[a-z0-9_]+$'),
  incarnation uuid not null,
  primary key (generation, part),
  unique (generation, schema_name)
);

create function reverse_index_refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is frozen: another contract is another generation', tg_table_name
    using errcode = 'integrity_constraint_violation';
end $$;
create trigger reverse_index_generation_frozen before update on reverse_index_generation for each row
  when ((old.generation, old.hash_algorithm, old.hash_seed, old.key_encoding, old.reverse_shards, old.parts, old.lanes)
        is distinct from
        (new.generation, new.hash_algorithm, new.hash_seed, new.key_encoding, new.reverse_shards, new.parts, new.lanes))
  execute function reverse_index_refuse_change();

-- Standard tables of a consuming schema. Projection names are `reverse_index.g<generation>`.
create table lease (
  name       text collate "C" primary key,
  owner      uuid not null,
  epoch      bigint not null,
  expires_at timestamptz not null
);
create table consumer_checkpoint (
  projection    text collate "C" not null,
  lane          text collate "C" not null,
  epoch         integer not null,
  next_offset   bigint not null,
  last_event_id uuid,
  owner_epoch   bigint not null,
  updated_at    timestamptz not null,
  primary key (projection, lane)
) with (fillfactor = 50);

-- Messages that could not be understood. Their relations may be wrong until each is closed by folding the relation as re-read
-- from the facts; a row is never dropped.
create table reverse_quarantine (
  generation   integer not null references reverse_index_generation,
  lane         text collate "C" not null,
  epoch        integer not null,
  offset_seq   bigint not null,
  event_id     uuid,
  schema_name  text not null,
  payload      bytea not null,
  reason       text not null,
  created_at   timestamptz not null default now(),
  closed_at    timestamptz,
  closed_cause text,
  primary key (generation, lane, epoch, offset_seq),
  check ((closed_at is null) = (closed_cause is null))
);
create index reverse_quarantine_open on reverse_quarantine (generation, lane) where closed_at is null;
