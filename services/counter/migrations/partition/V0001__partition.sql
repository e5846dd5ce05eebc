-- counter partition: relation projection, bucket counts, receipts and fences of the virtual buckets routed here. Everything is
-- keyed by projection generation, so that a shadow never meets the live one. Ids compare by bytes (collate "C").

create table partition_identity (
  singleton   boolean primary key default true check (singleton),
  partition   text not null,
  incarnation uuid not null
);

-- What the counter has applied of each relation. A relation that has no row is UNLIKED at version 0.
create table like_count_projection (
  version              bigint not null check (version > 0),
  hidden_version       bigint not null default 0,
  generation           integer not null,
  bucket_space_version integer not null,
  vbucket              integer not null check (vbucket >= 0),
  state                smallint not null check (state in (1, 2)),     -- 1 LIKED, 2 UNLIKED
  hidden_reasons       smallint not null default 0,
  video_id             text collate "C" not null,
  user_id              text collate "C" not null,
  primary key (generation, video_id, user_id)
) with (fillfactor = 85);

-- LIKED relations per (video, virtual bucket); rows exist for touched buckets only. `last_delta` is the net change of the last
-- fold: it carries the change into the upsert, whose CHECK would refuse a negative proposed count. A quarantined bucket
-- stands still until it is recounted from its relations.
create table video_like_count_vbucket (
  active_count         bigint not null check (active_count >= 0),
  risk_hidden_count    bigint not null default 0 check (risk_hidden_count >= 0),
  policy_hidden_count  bigint not null default 0 check (policy_hidden_count >= 0),
  bucket_version       bigint not null,
  last_delta           bigint not null,
  updated_at           timestamptz not null,
  quarantined_at       timestamptz,
  generation           integer not null,
  bucket_space_version integer not null,
  vbucket              integer not null check (vbucket >= 0),
  video_id             text collate "C" not null,
  primary key (generation, video_id, vbucket)
) with (fillfactor = 50);

-- One row per applied group, written in its transaction: the messages it held and the buckets it wrote (`videos`, `vbuckets` and
-- `bucket_versions` stand side by side). `source_seqs` is null when each equals its offset, as it should.
create table count_event_receipt (
  receipt_id      bigint generated always as identity primary key,
  generation      integer not null,
  epoch           integer not null,
  first_offset    bigint not null,
  last_offset     bigint not null,
  applied_at      timestamptz not null default now(),
  lane            text collate "C" not null,
  offsets         bigint[] not null,
  event_ids       uuid[] not null,
  source_seqs     bigint[],
  videos          text[] not null,
  vbuckets        integer[] not null,
  bucket_versions bigint[] not null,
  check (cardinality(offsets) = cardinality(event_ids))
);
alter table count_event_receipt alter column event_ids set storage external;   -- random bytes do not compress
create index count_event_receipt_lane on count_event_receipt (generation, lane, epoch, last_offset);

-- Which virtual buckets may be written here, and under which route epoch. Changes only under the partition's lock in exclusive mode.
create table partition_fence (
  generation  integer not null,
  vbucket     integer not null,
  route_epoch bigint not null,
  state       text not null check (state in ('ACTIVE', 'DRAINING', 'CLOSED')),
  primary key (generation, vbucket)
);

-- Highest owner of each lane; a group of an older owner is refused.
create table lane_owner_epoch (
  generation  integer not null,
  lane        text collate "C" not null,
  owner_epoch bigint not null,
  primary key (generation, lane)
);

-- The last message of each lane applied here: what a partition that lost its tail is found out by.
create table applied (
  generation  integer not null,
  lane        text collate "C" not null,
  epoch       integer not null,
  offset_seq  bigint not null,
  event_id    uuid not null,
  primary key (generation, lane)
) with (fillfactor = 50);

-- Folds one group (the part of a batch that is routed here) in one transaction and answers what became of it: APPLIED, REPLAY
-- (this very group was applied before), FENCED (a newer owner holds the lane) or ROUTE_MISMATCH (a bucket is not writable here under
-- its route epoch). Relations come sorted by (video, user), one row each at its highest version.
-- VOLATILE in READ COMMITTED: every statement takes its own snapshot, so what follows the lock sees what was committed before it.
create function fold_group(
  p_lock_class integer, p_lock_key integer,
  p_generation integer, p_space integer, p_lane text, p_owner_epoch bigint,
  p_epoch integer, p_offsets bigint[], p_event_ids uuid[], p_source_seqs bigint[],
  p_fence_vbuckets integer[], p_fence_epochs bigint[],
  p_videos text[], p_users text[], p_vbuckets integer[], p_versions bigint[], p_states smallint[],
  out outcome text, out relations_written integer, out buckets_written integer, out buckets_quarantined integer)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
  v_first constant bigint := p_offsets[1];
  v_last constant bigint := p_offsets[cardinality(p_offsets)];
begin
  relations_written := 0; buckets_written := 0; buckets_quarantined := 0;
  perform pg_advisory_xact_lock_shared(p_lock_class, p_lock_key);

  if (select o.owner_epoch from lane_owner_epoch o where o.generation = p_generation and o.lane = p_lane)
     is distinct from p_owner_epoch then
    outcome := 'FENCED'; return;
  end if;
  perform 1 from unnest(p_fence_vbuckets, p_fence_epochs) as touched(vbucket, route_epoch)
    left join lateral (
      select f.route_epoch, f.state from partition_fence f
      where f.generation = p_generation and f.vbucket = touched.vbucket offset 0) as fence on true
    where fence.state is distinct from 'ACTIVE' or fence.route_epoch is distinct from touched.route_epoch;
  if found then
    outcome := 'ROUTE_MISMATCH'; return;
  end if;
  perform 1 from count_event_receipt r
    where r.generation = p_generation and r.lane = p_lane and r.epoch = p_epoch and r.last_offset = v_last and r.offsets = p_offsets;
  if found then
    outcome := 'REPLAY'; return;
  end if;

  with folded as (
    insert into like_count_projection as kept (generation, bucket_space_version, video_id, user_id, vbucket, version, state)
    select p_generation, p_space, i.video_id, i.user_id, i.vbucket, i.version, i.state
    from unnest(p_videos, p_users, p_vbuckets, p_versions, p_states) as i(video_id, user_id, vbucket, version, state)
    on conflict (generation, video_id, user_id) do update set version = excluded.version, state = excluded.state
      where kept.version < excluded.version
    returning new.video_id, new.vbucket, (new.state = 1)::integer - coalesce((old.state = 1)::integer, 0) as delta),
  net as (
    select f.video_id, f.vbucket, sum(f.delta)::bigint as delta from folded f
    group by f.video_id, f.vbucket having sum(f.delta) <> 0),
  written as (
    insert into video_like_count_vbucket as kept
      (generation, bucket_space_version, video_id, vbucket, active_count, last_delta, bucket_version, updated_at, quarantined_at)
    select p_generation, p_space, n.video_id, n.vbucket, greatest(n.delta, 0), n.delta, 1, now(), case when n.delta < 0 then now() end
    from net n order by n.video_id, n.vbucket               -- one order everywhere: lanes never deadlock
    on conflict (generation, video_id, vbucket) do update set
      active_count = kept.active_count
        + case when kept.quarantined_at is null and kept.active_count + excluded.last_delta >= 0 then excluded.last_delta else 0 end,
      quarantined_at = case when kept.quarantined_at is null and kept.active_count + excluded.last_delta < 0
        then excluded.updated_at else kept.quarantined_at end,
      last_delta = excluded.last_delta, bucket_version = kept.bucket_version + 1, updated_at = excluded.updated_at
    returning new.video_id, new.vbucket, new.bucket_version, new.quarantined_at is not null as quarantined),
  summary as (
    select coalesce(array_agg(w.video_id), '{}') as videos, coalesce(array_agg(w.vbucket), '{}') as vbuckets,
      coalesce(array_agg(w.bucket_version), '{}') as bucket_versions, count(*) as buckets,
      count(*) filter (where w.quarantined) as quarantined
    from written w),
  receipt as (
    insert into count_event_receipt
      (generation, lane, epoch, first_offset, last_offset, offsets, event_ids, source_seqs, videos, vbuckets, bucket_versions)
    select p_generation, p_lane, p_epoch, v_first, v_last, p_offsets, p_event_ids, p_source_seqs, s.videos, s.vbuckets, s.bucket_versions
    from summary s)
  select (select count(*) from folded), s.buckets, s.quarantined
    into relations_written, buckets_written, buckets_quarantined from summary s;

  insert into applied as kept (generation, lane, epoch, offset_seq, event_id)
  values (p_generation, p_lane, p_epoch, v_last, p_event_ids[cardinality(p_event_ids)])
  on conflict (generation, lane) do update
    set epoch = excluded.epoch, offset_seq = excluded.offset_seq, event_id = excluded.event_id
    where (kept.epoch, kept.offset_seq) < (excluded.epoch, excluded.offset_seq);
  outcome := 'APPLIED';
end $$;
