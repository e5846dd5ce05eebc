-- counter metadata: contracts of projections, where they stand, and what is shown. Ids compare by bytes (collate "C"), as
-- they do in the service.

-- A frozen contract: which virtual bucket a relation belongs to. A row never changes; another contract is another row.
create table count_bucket_space (
  version        integer primary key check (version > 0),
  hash_algorithm text not null,
  hash_seed      bigint not null,                 -- the 64 bits of an unsigned seed
  key_encoding   text not null,
  vbuckets       integer not null check (vbuckets between 1 and 65536),
  created_at     timestamptz not null default now()
);

-- Where partitions stand. The placement stored here wins over settings; the incarnation must equal the partition's own,
-- so that a wrong server address is refused instead of counted into.
create table count_partition (
  partition   text collate "C" primary key check (partition ~ '^p[0-9]{2,4}$'),
  server      text not null,
  schema_name text not null unique,
  incarnation uuid not null,
  created_at  timestamptz not null default now()
);

create table count_projection_generation (
  generation           integer primary key check (generation > 0),
  bucket_space_version integer not null references count_bucket_space,
  lanes                integer not null check (lanes > 0),   -- relation shards it consumes; never changes
  status               text not null check (status in ('SHADOW', 'ACTIVE', 'RETIRED', 'FAILED')),
  active_manifest_id   bigint,
  created_at           timestamptz not null default now(),
  status_changed_at    timestamptz not null default now(),
  check (status <> 'ACTIVE' or active_manifest_id is not null)
);
create unique index count_projection_generation_active on count_projection_generation (status) where status = 'ACTIVE';

-- Every virtual bucket of a generation to its partition. SEALED once count and checksum of the stored items were verified;
-- then neither it nor its items change.
create table count_route_manifest (
  manifest_id          bigint generated always as identity primary key,
  generation           integer not null references count_projection_generation,
  bucket_space_version integer not null references count_bucket_space,
  status               text not null check (status in ('BUILDING', 'SEALED')),
  row_count            integer,
  checksum             bytea,
  created_at           timestamptz not null default now(),
  sealed_at            timestamptz,
  unique (generation, manifest_id),
  check ((status = 'SEALED') = (row_count is not null and checksum is not null and sealed_at is not null))
);
create table count_route_manifest_item (
  manifest_id bigint not null references count_route_manifest,
  vbucket     integer not null check (vbucket >= 0),
  partition   text collate "C" not null references count_partition,
  route_epoch bigint not null check (route_epoch > 0),
  primary key (manifest_id, vbucket)
);
alter table count_projection_generation
  add foreign key (generation, active_manifest_id) references count_route_manifest (generation, manifest_id);

-- The current route of every virtual bucket, for people and joins. Rebuilt from the active manifest, never an authority.
create table count_bucket_route (
  generation  integer not null references count_projection_generation,
  vbucket     integer not null,
  partition   text collate "C" not null,
  route_epoch bigint not null,
  primary key (generation, vbucket)
);

create function count_refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is frozen: a new row states a new contract', tg_table_name using errcode = 'integrity_constraint_violation';
end $$;
create function count_refuse_sealed() returns trigger language plpgsql as $$
begin
  if exists (select from count_route_manifest m where m.status = 'SEALED'
             and m.manifest_id in (case when tg_op <> 'INSERT' then old.manifest_id end, case when tg_op <> 'DELETE' then new.manifest_id end)) then
    raise exception 'the manifest is SEALED' using errcode = 'integrity_constraint_violation';
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;
create trigger count_bucket_space_frozen before update or delete on count_bucket_space
  for each row execute function count_refuse_change();
create trigger count_route_manifest_sealed before update or delete on count_route_manifest
  for each row when (old.status = 'SEALED') execute function count_refuse_change();
create trigger count_route_manifest_item_sealed before insert or update or delete on count_route_manifest_item
  for each row execute function count_refuse_sealed();

-- Standard tables of a consuming schema. Projection names are `counter.g<generation>`.
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

-- Messages that could not be understood. While one is open its generation is INCOMPLETE and its counts APPROXIMATE. It is
-- closed by folding the relation as re-read from the facts, never by dropping it.
create table count_quarantine (
  generation   integer not null references count_projection_generation,
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
create index count_quarantine_open on count_quarantine (generation, lane) where closed_at is null;

-- What users see. A row never goes back to an older pass.
create table count_display_snapshot (
  generation    integer not null,
  video_id      text collate "C" not null,
  raw           bigint not null check (raw >= 0),
  risk_hidden   bigint not null check (risk_hidden >= 0),
  policy_hidden bigint not null check (policy_hidden >= 0),
  display       bigint not null generated always as (raw - risk_hidden - policy_hidden) stored check (display >= 0),
  approximate   boolean not null,
  pass          bigint not null check (pass > 0),
  generated_at  timestamptz not null,
  primary key (generation, video_id)
) with (fillfactor = 70);

-- Passes of the aggregator. A pass is complete when every video that its vector saw changed was written; from then on every
-- row of the slice, changed or not, is right as of that vector. Lanes, epochs and next offsets stand side by side.
create table count_aggregation_pass (
  generation   integer not null,
  slice        integer not null,
  pass         bigint not null check (pass > 0),
  lanes        text[] not null,
  epochs       integer[] not null,
  next_offsets bigint[] not null,
  videos       bigint not null default 0,      -- rows written in this pass
  started_at   timestamptz not null,
  completed_at timestamptz,
  primary key (generation, slice, pass),
  check (cardinality(lanes) = cardinality(epochs) and cardinality(lanes) = cardinality(next_offsets))
);
create index count_aggregation_pass_complete on count_aggregation_pass (generation, slice, pass) where completed_at is not null;

-- Up to where every changed video has its row *and* its Redis view. A new owner starts here.
create table count_aggregator_position (
  generation  integer not null,
  slice       integer not null,
  lane        text collate "C" not null,
  epoch       integer not null,
  next_offset bigint not null,
  pass        bigint not null,
  updated_at  timestamptz not null,
  primary key (generation, slice, lane)
) with (fillfactor = 50);
