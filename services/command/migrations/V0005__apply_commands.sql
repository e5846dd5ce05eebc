-- The batch with the second axis, the freezes of risk acts, and the sweeps that use it. Replaces the function of V0002.

drop function apply_commands;

-- What risk acts say about one pair: reasons not to count it, and whether it is frozen at p_now.
create function risk_of(p_user text, p_video text, p_now timestamptz) returns table (hides smallint, freezes boolean)
language sql stable
begin atomic
  select case when s.kind = 1 then 1 else 0 end::smallint, s.kind = 2 and coalesce(s.frozen_until > p_now, true)
  from risk_state s where s.user_id = p_user and s.video_id in ('', p_video)
  union all
  select 0::smallint, coalesce(s.frozen_until > p_now, true)
  from risk_state s where s.user_id = '' and s.video_id = p_video and s.kind = 2;
end;

-- Decides and writes one batch of commands. The rule is domain::decide::decide; a test holds this text to it.
--
-- The caller sends at most one command per relation and per (user, operation) in a batch. Arrays run in parallel:
-- p_op_times the time a dated id tells, null for others; p_bases null for none; p_refusals 0 or the policy's refusal;
-- p_causes as domain::relation::Cause numbers them.
--
-- The shard's lock is a statement of its own, and the function is VOLATILE: under READ COMMITTED the statements after it
-- take their snapshots after the lock was granted. Nothing read before the lock is decided on.
--
-- Every look-up is LATERAL with OFFSET 0 or LIMIT: one index probe per command, whatever the statistics say. Otherwise a
-- batch on an empty or unanalysed table joins by scanning it. Where no risk act stands, none is looked for.
create function apply_commands(
  p_lock_class integer, p_shard integer,
  p_users text[], p_operations text[], p_op_times timestamptz[], p_videos text[], p_states smallint[], p_bases bigint[],
  p_refusals smallint[], p_causes smallint[], p_client_sequences bigint[], p_devices bytea[],
  p_last_commit_wins boolean, p_transitions_max integer, p_transition_window_us bigint,
  p_dated_age_us_max bigint, p_dated_ahead_us_max bigint)
returns table (
  o_item integer, o_known boolean, o_outcome smallint, o_state smallint, o_version bigint,
  o_current_state smallint, o_current_version bigint, o_current_changed_at timestamptz,
  o_epoch integer, o_seq bigint, o_retry_after_us bigint, o_now timestamptz)
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now    timestamptz;
  v_week   timestamptz;
  v_oldest timestamptz;
  v_newest timestamptz;
  v_window interval := p_transition_window_us * interval '1 microsecond';
  v_epoch  integer;
  v_floor  bigint;
  v_closed boolean;
  v_risk   boolean;
  v_seq    bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'commands are applied in READ COMMITTED only' using errcode = 'LK002';
  end if;
  perform pg_advisory_xact_lock(p_lock_class, p_shard);

  v_now := clock_timestamp();
  v_week := date_trunc('week', v_now, 'UTC');
  v_oldest := v_now - p_dated_age_us_max * interval '1 microsecond';
  v_newest := v_now + p_dated_ahead_us_max * interval '1 microsecond';
  select m.epoch, m.epoch::bigint << 40, m.status <> 'SERVING' or coalesce(m.barrier_until > v_now, false)
    into strict v_epoch, v_floor, v_closed from shard_meta m;
  select coalesce(max(o.seq), 0) into v_seq from outbox o;
  v_risk := exists (select from risk_state);

  return query
  with found as (
    select i.ord::integer as item, i.usr, i.op, i.op_time, i.vid, i.want, i.base, i.refusal, i.cause, i.client_seq, i.device,
           c.outcome as k_outcome, c.video_id as k_video, c.desired_state as k_want,
           c.result_state as k_state, c.result_version as k_version,
           coalesce(a.state <> 2, false) as inactive, coalesce(s.freezes, false) as frozen,
           (coalesce(s.hides, 0) | coalesce(account_hides(a.state), 0))::smallint as hides,
           r.tid, r.relation_version as stored,
           greatest(coalesce(r.relation_version, 0), v_floor) as ver, coalesce(r.state, 2::smallint) as st,
           r.state_changed_at as changed_at, coalesce(r.state_epoch, v_epoch) as pos_epoch, coalesce(r.state_seq, 0) as pos_seq,
           case when r.transition_window_start + v_window > v_now then r.transition_window_start end as win_start,
           r.transition_count as win_count,
           greatest(coalesce(r.hidden_version, 0), v_floor) as hid_ver, coalesce(r.hidden_reasons, 0::smallint) as hid_reasons,
           coalesce(r.hidden_seq, 0) as hid_seq, coalesce(r.hidden_epoch, v_epoch) as hid_epoch
    from unnest(p_users, p_operations, p_op_times, p_videos, p_states, p_bases, p_refusals, p_causes, p_client_sequences, p_devices)
           with ordinality as i(usr, op, op_time, vid, want, base, refusal, cause, client_seq, device, ord)
    left join lateral (
      select c.outcome, c.video_id, c.desired_state, c.result_state, c.result_version from like_command c
      where c.user_id = i.usr and c.operation_id = i.op
        and c.op_time >= coalesce(i.op_time, '-infinity') and c.op_time <= coalesce(i.op_time, 'infinity')
      limit 1) c on true
    left join lateral (select a.state from account_state a where a.user_id = i.usr offset 0) a on true
    left join lateral (
      select r.ctid as tid, r.relation_version, r.state, r.state_changed_at, r.state_epoch, r.state_seq,
             r.transition_window_start, r.transition_count, r.hidden_version, r.hidden_reasons, r.hidden_seq, r.hidden_epoch
      from like_relation r where r.user_id = i.usr and r.video_id = i.vid offset 0) r on true
    left join lateral (
      select bit_or(s.hides) as hides, bool_or(s.freezes) as freezes from risk_of(i.usr, i.vid, v_now) s where v_risk) s on v_risk
  ), judged as (
    select f.*,
           (case
              when f.k_outcome is not null then
                case when f.k_video = f.vid and f.k_want = f.want then f.k_outcome else 10 end
              when v_closed then 11
              when f.cause = 1 and (f.op_time < v_oldest or f.op_time > v_newest) then 12
              when f.cause = 1 and f.inactive then 6
              when f.cause = 1 and f.frozen then 5
              when f.cause = 1 and f.refusal <> 0 then 13
              when f.cause = 1 and not p_last_commit_wins and f.base <> f.ver then 3
              when f.cause <> 5 and f.want = f.st then 2
              when f.cause = 1 and f.win_start is not null and f.win_count >= p_transitions_max then 4
              else 1
            end)::smallint as verdict
    from found f offset 0
  ), decided as materialized (
    select j.*, j.k_outcome is null and j.verdict = 1 as applies,
           greatest(j.changed_at + interval '1 microsecond', v_now) as new_changed_at,   -- greatest() passes over null
           v_seq + count(*) filter (where j.k_outcome is null and j.verdict = 1) over (rows unbounded preceding) as new_seq,
           j.hid_ver + (j.hid_reasons <> j.hides)::integer as new_hid_ver
    from judged j
  ), inserted as (
    insert into like_relation (user_id, video_id, state, relation_version, last_operation_id, state_changed_at,
                               transition_window_start, transition_count, cause, state_epoch, state_seq, created_at, updated_at,
                               hidden_version, hidden_reasons, hidden_epoch, hidden_seq)
    select d.usr, d.vid, d.want, d.ver + 1, d.op, v_now, v_now, 1, d.cause, v_epoch, d.new_seq, v_now, v_now,
           d.new_hid_ver, d.hides, v_epoch, case when d.new_hid_ver > d.hid_ver then d.new_seq else 0 end
    from decided d where d.applies and d.tid is null
    on conflict (user_id, video_id) do nothing
    returning 1
  ), updated as (
    update like_relation t
    set state = d.want, relation_version = d.ver + 1, last_operation_id = d.op, state_changed_at = d.new_changed_at,
        transition_window_start = coalesce(d.win_start, v_now),
        transition_count = case when d.win_start is null then 1 else d.win_count + 1 end,
        cause = d.cause, state_epoch = v_epoch, state_seq = d.new_seq, updated_at = v_now,
        hidden_version = d.new_hid_ver, hidden_reasons = d.hides,
        hidden_epoch = case when d.new_hid_ver > d.hid_ver then v_epoch else d.hid_epoch end,
        hidden_seq = case when d.new_hid_ver > d.hid_ver then d.new_seq else d.hid_seq end
    from decided d
    where d.applies and t.ctid = d.tid and t.relation_version = d.stored
    returning 1
  ), recorded as (
    insert into like_command (user_id, operation_id, op_time, video_id, desired_state, base_version, outcome,
                              result_state, result_version, client_sequence, device_hash, created_at)
    select d.usr, d.op, coalesce(d.op_time, v_week), d.vid, d.want, d.base, d.verdict,
           case when d.applies then d.want else d.st end, case when d.applies then d.ver + 1 else d.ver end,
           d.client_seq, d.device, v_now
    from decided d where d.k_outcome is null and d.verdict < 10
  ), announced as (
    insert into outbox (seq, event_id, user_id, video_id, relation_version, state, previous_state, state_changed_at,
                        operation_id, cause, epoch, created_at, hidden_version, hidden_reasons, previous_hidden_reasons)
    select d.new_seq, gen_random_uuid(), d.usr, d.vid, d.ver + 1, d.want, d.st, d.new_changed_at,
           d.op, d.cause, v_epoch, v_now, d.new_hid_ver, d.hides, d.hid_reasons
    from decided d where d.applies
  ), checked as materialized (
    select expect_relations_written((select count(*) from inserted) + (select count(*) from updated),
                                    (select count(*) from decided d where d.applies)) as complete
  )
  select d.item, d.k_outcome is not null, d.verdict,
         case when d.applies then d.want else coalesce(d.k_state, d.st) end,
         case when d.applies then d.ver + 1 else coalesce(d.k_version, d.ver) end,
         case when d.applies then d.want else d.st end,
         case when d.applies then d.ver + 1 else d.ver end,
         case when d.applies then d.new_changed_at else d.changed_at end,
         case when d.applies then v_epoch else d.pos_epoch end,
         case when d.applies then d.new_seq else d.pos_seq end,
         case when d.verdict = 4 then
           greatest((extract(epoch from (coalesce(d.win_start, v_now - v_window) + v_window - v_now)) * 1000000)::bigint, 0) end,
         v_now
  from decided d, checked
  where checked.complete;
end $$;

-- Takes the next relations of a deleted account (state 5), or gives back what its deletion took, at most p_limit, through the
-- rule that every command goes through. Their ids are derived, so a repeat changes nothing. Answers SUPERSEDED (another request
-- is newer), CLOSED (the shard takes no commands), MORE or DONE.
create function sweep_relations(p_lock_class integer, p_shard integer, p_user text, p_request bigint, p_limit integer)
returns text
language plpgsql volatile
as $$
declare
  v_state   smallint;
  v_version bigint;
  v_take    boolean;
  v_videos  text[];
  v_ids     text[];
  v_changed bigint;
  v_closed  boolean;
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  perform from account_sweep s where s.user_id = p_user and s.request = p_request;
  if not found then return 'SUPERSEDED'; end if;
  select a.state, a.version into v_state, v_version from account_state a where a.user_id = p_user;
  v_take := coalesce(v_state = 5, false);
  select array_agg(r.video_id), array_agg('lw:account.' || v_version || '.' || left(encode(sha256(convert_to(r.video_id, 'UTF8')), 'hex'), 32))
    into v_videos, v_ids
    from (select r.video_id from like_relation r
          where r.user_id = p_user and case when v_take then r.state = 1 else r.state = 2 and r.cause = 2 end
          limit p_limit) r;
  if v_videos is null then
    update account_sweep s set phase = 2, after_video = '' where s.user_id = p_user;
    return 'DONE';
  end if;
  select count(*) filter (where o_outcome = 1 and not o_known), bool_or(o_outcome = 11) into v_changed, v_closed
    from apply_commands(
      p_lock_class, p_shard, array_fill(p_user, array[cardinality(v_videos)]), v_ids, array_fill(null::timestamptz, array[cardinality(v_videos)]),
      v_videos, array_fill((case when v_take then 2 else 1 end)::smallint, array[cardinality(v_videos)]),
      array_fill(null::bigint, array[cardinality(v_videos)]), array_fill(0::smallint, array[cardinality(v_videos)]),
      array_fill((case when v_take then 2 else 6 end)::smallint, array[cardinality(v_videos)]),
      array_fill(null::bigint, array[cardinality(v_videos)]), array_fill(null::bytea, array[cardinality(v_videos)]),
      true, 1, 1, 1, 1);
  if v_closed then return 'CLOSED'; end if;
  if v_changed = 0 then
    raise exception 'SWEEP_STUCK: % relations of an account do not change', cardinality(v_videos) using errcode = 'LK003';
  end if;
  update account_sweep s set changed = s.changed + v_changed, claimed_till = clock_timestamp() + interval '5 seconds'
  where s.user_id = p_user;
  return 'MORE';
end $$;

-- Brings the second axis of the next relations of an account in line with risk acts and the account's state, at most p_limit
-- looked at, in the order of their videos. UNLIKED ones are left: their next change carries the axis with it.
create function sweep_hidden(p_lock_class integer, p_shard integer, p_user text, p_request bigint, p_limit integer)
returns text
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
  v_now    timestamptz;
  v_epoch  integer;
  v_floor  bigint;
  v_closed boolean;
  v_seq    bigint;
  v_state  smallint;
  v_after  text;
  v_seen   bigint;
  v_last   text;
  v_changed bigint;
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  v_now := clock_timestamp();
  select s.after_video into v_after from account_sweep s where s.user_id = p_user and s.request = p_request;
  if not found then return 'SUPERSEDED'; end if;
  select m.epoch, m.epoch::bigint << 40, m.status <> 'SERVING' or coalesce(m.barrier_until > v_now, false)
    into strict v_epoch, v_floor, v_closed from shard_meta m;
  if v_closed then return 'CLOSED'; end if;
  select coalesce(max(o.seq), 0) into v_seq from outbox o;
  select a.state into v_state from account_state a where a.user_id = p_user;

  with seen as materialized (
    select r.ctid as tid, r.video_id, r.state, r.relation_version, r.state_changed_at, r.last_operation_id, r.cause,
           greatest(r.hidden_version, v_floor) as hid_ver, r.hidden_reasons,
           (coalesce(s.hides, 0) | coalesce(account_hides(v_state), 0))::smallint as hides
    from (select r.* , r.ctid from like_relation r where r.user_id = p_user and r.video_id > v_after
          order by r.video_id limit p_limit) r
    left join lateral (select bit_or(s.hides) as hides from risk_of(p_user, r.video_id, v_now) s) s on true
  ), differs as materialized (
    select s.*, v_seq + row_number() over (order by s.video_id) as new_seq
    from seen s where s.state = 1 and s.hides <> s.hidden_reasons
  ), updated as (
    update like_relation t
    set hidden_version = d.hid_ver + 1, hidden_reasons = d.hides, hidden_epoch = v_epoch, hidden_seq = d.new_seq, updated_at = v_now
    from differs d where t.ctid = d.tid
    returning 1
  ), announced as (
    insert into outbox (seq, event_id, user_id, video_id, relation_version, state, previous_state, state_changed_at,
                        operation_id, cause, epoch, created_at, kind, hidden_version, hidden_reasons, previous_hidden_reasons)
    select d.new_seq, gen_random_uuid(), p_user, d.video_id, greatest(d.relation_version, v_floor), d.state, d.state, d.state_changed_at,
           d.last_operation_id, d.cause, v_epoch, v_now, 2, d.hid_ver + 1, d.hides, d.hidden_reasons
    from differs d
  ), checked as (
    select expect_relations_written((select count(*) from updated), (select count(*) from differs)) as complete
  )
  select (select count(*) from seen), (select max(s.video_id) from seen s), (select count(*) from differs)
    into v_seen, v_last, v_changed from checked c where c.complete;
  update account_sweep s
  set after_video = coalesce(v_last, s.after_video), changed = s.changed + v_changed, claimed_till = v_now + interval '5 seconds'
  where s.user_id = p_user;
  return case when v_seen < p_limit then 'DONE' else 'MORE' end;
end $$;
