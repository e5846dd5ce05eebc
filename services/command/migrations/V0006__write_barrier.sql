-- Write barriers: while one stands, no relation of the shard changes, so that what is read at its watermark can be compared
-- exactly. Everything here happens under the shard's lock, and is kept.

alter table shard_meta
  add column barrier_epoch integer,                        -- epoch and highest outbox number when it was granted
  add column barrier_seq   bigint;

create table barrier_audit (
  entry   bigint generated always as identity primary key,
  at      timestamptz not null default clock_timestamp(),
  token   uuid not null,
  seq     bigint not null,
  epoch   integer not null,
  action  text not null check (action in ('GRANTED', 'PROVED', 'REFUSED', 'RELEASED')),
  who     text not null,
  reason  text not null
);
create index barrier_audit_token on barrier_audit (token);

-- Grants a barrier unless another stands or the shard does not serve. A token is granted once and never renewed.
create function acquire_barrier(p_lock_class integer, p_shard integer, p_token uuid, p_ttl_ms bigint, p_who text, p_reason text,
                                out granted boolean, out epoch integer, out seq bigint, out until timestamptz)
language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  select coalesce(max(o.seq), 0) into seq from outbox o;
  update shard_meta m
  set barrier_token = p_token, barrier_until = clock_timestamp() + p_ttl_ms * interval '1 millisecond',
      barrier_epoch = m.epoch, barrier_seq = acquire_barrier.seq
  where m.status = 'SERVING' and coalesce(m.barrier_until <= clock_timestamp(), true)
    and not exists (select from barrier_audit a where a.token = p_token)
  returning m.epoch, m.barrier_until into epoch, until;
  granted := found;
  if granted then
    insert into barrier_audit (token, seq, epoch, action, who, reason) values (p_token, seq, epoch, 'GRANTED', p_who, p_reason);
  end if;
end $$;

-- Whether nothing was written since the barrier was granted, and it still stands.
create function prove_barrier(p_lock_class integer, p_shard integer, p_token uuid, p_who text,
                              out holds boolean, out problem text, out epoch integer, out seq bigint, out until timestamptz)
language plpgsql volatile
as $$
declare
  m shard_meta;
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  select s.* into strict m from shard_meta s;
  select coalesce(max(o.seq), 0) into seq from outbox o;
  epoch := m.epoch;
  until := m.barrier_until;
  problem := case
    when m.barrier_token is distinct from p_token then 'OTHER_TOKEN'
    when m.barrier_until <= clock_timestamp() then 'LAPSED'
    when m.barrier_epoch <> m.epoch then 'EPOCH_CHANGED'
    when m.barrier_seq <> seq then 'WRITTEN'
  end;
  holds := problem is null;
  insert into barrier_audit (token, seq, epoch, action, who, reason)
  values (p_token, seq, epoch, case when holds then 'PROVED' else 'REFUSED' end, p_who, coalesce(problem, ''));
end $$;

-- Ends a barrier; false when it no longer stood.
create function release_barrier(p_lock_class integer, p_shard integer, p_token uuid, p_who text) returns boolean
language plpgsql volatile
as $$
declare
  m shard_meta;
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  select s.* into strict m from shard_meta s;
  if m.barrier_token is distinct from p_token then return false; end if;
  update shard_meta set barrier_token = null, barrier_until = null, barrier_epoch = null, barrier_seq = null;
  insert into barrier_audit (token, seq, epoch, action, who, reason)
  values (p_token, coalesce(m.barrier_seq, 0), m.epoch, 'RELEASED', p_who, '');
  return m.barrier_until > clock_timestamp();
end $$;
