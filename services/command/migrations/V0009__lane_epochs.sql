-- Epochs of the shard's lane, and the statement that makes a shard whole after it lost commits which were published.

-- One row per epoch; the present one is that of shard_meta. first_seq is one above the last number that the older epochs'
-- streams and this one have in common. An epoch is being opened until served_at is set.
create table lane_epoch (
  epoch     integer primary key check (epoch >= 0),
  first_seq bigint not null check (first_seq > 0),
  began_at  timestamptz not null default clock_timestamp(),
  served_at timestamptz,
  lost      bigint not null default 0,       -- published messages after that number, in all older streams
  restated  bigint not null default 0        -- relations that were given a new version because of them
);
insert into lane_epoch (epoch, first_seq, served_at) values (0, 1, clock_timestamp());

-- Gives relations a new version on both axes in the shard's new epoch, above all that was ever published: what they are is
-- stated again; one that the facts have no trace of becomes UNLIKED. Answers how many. What users did (state, when, by which
-- operation, why) stays as it is. A pair may be named more than once, and the same call may be made again.
create function restate_relations(p_lock_class integer, p_shard integer, p_epoch integer, p_users text[], p_videos text[])
returns bigint
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_now      timestamptz;
  v_floor    bigint := p_epoch::bigint << 40;
  v_seq      bigint;
  v_restated bigint;
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  perform from shard_meta m where m.epoch = p_epoch and m.status = 'REPAIRING';
  if not found then
    raise exception 'the shard is not being repaired in epoch %', p_epoch using errcode = 'LK004';
  end if;
  v_now := clock_timestamp();
  select coalesce(max(o.seq), 0) into v_seq from outbox o;

  with named as (
    select n.usr, n.vid, v_seq + row_number() over () as new_seq
    from (select distinct i.usr, i.vid from unnest(p_users, p_videos) as i(usr, vid)) n
  ), found as materialized (
    select n.usr, n.vid, n.new_seq, r.tid, r.relation_version as stored, coalesce(r.state, 2::smallint) as st,
           coalesce(r.state_changed_at, v_now) as changed_at, coalesce(r.last_operation_id, 'lw:restate.' || p_epoch) as op,
           greatest(coalesce(r.relation_version, 0), v_floor) + 1 as new_ver,
           greatest(coalesce(r.hidden_version, 0), v_floor) + 1 as new_hid_ver,
           coalesce(r.hidden_reasons, 0::smallint) as old_hides,
           (coalesce(s.hides, 0) | coalesce(account_hides(a.state), 0))::smallint as hides
    from named n
    left join lateral (
      select r.ctid as tid, r.relation_version, r.state, r.state_changed_at, r.last_operation_id, r.hidden_version,
             r.hidden_reasons
      from like_relation r where r.user_id = n.usr and r.video_id = n.vid offset 0) r on true
    left join lateral (select a.state from account_state a where a.user_id = n.usr offset 0) a on true
    left join lateral (select bit_or(s.hides) as hides from risk_of(n.usr, n.vid, v_now) s) s on true
  ), inserted as (
    insert into like_relation (user_id, video_id, state, relation_version, last_operation_id, state_changed_at,
                               transition_window_start, transition_count, cause, state_epoch, state_seq, created_at, updated_at,
                               hidden_version, hidden_reasons, hidden_epoch, hidden_seq)
    select f.usr, f.vid, f.st, f.new_ver, f.op, f.changed_at, v_now, 0, 5, p_epoch, f.new_seq, v_now, v_now,
           f.new_hid_ver, f.hides, p_epoch, f.new_seq
    from found f where f.tid is null
    on conflict (user_id, video_id) do nothing
    returning 1
  ), updated as (
    update like_relation t
    set relation_version = f.new_ver, state_epoch = p_epoch, state_seq = f.new_seq, updated_at = v_now,
        hidden_version = f.new_hid_ver, hidden_reasons = f.hides, hidden_epoch = p_epoch, hidden_seq = f.new_seq
    from found f where t.ctid = f.tid and t.relation_version = f.stored
    returning 1
  ), announced as (
    insert into outbox (seq, event_id, user_id, video_id, relation_version, state, previous_state, state_changed_at,
                        operation_id, cause, epoch, created_at, hidden_version, hidden_reasons, previous_hidden_reasons)
    select f.new_seq, gen_random_uuid(), f.usr, f.vid, f.new_ver, f.st, f.st, f.changed_at,
           f.op, 5, p_epoch, v_now, f.new_hid_ver, f.hides, f.old_hides
    from found f
  ), checked as (
    select expect_relations_written((select count(*) from inserted) + (select count(*) from updated),
                                    (select count(*) from found)) as complete
  )
  select count(*) into v_restated from found f, checked c where c.complete;
  return v_restated;
end $$;
