-- Who still needs the shard's outbox. A partition of it is dropped only when nobody here does.

-- Consumers of the lane and the first number each has not applied. One that was not heard for its ttl keeps nothing.
create table lane_consumer (
  name          text primary key,
  owner         text not null,
  epoch         integer not null check (epoch >= 0),
  next_seq      bigint not null check (next_seq > 0),
  ttl           interval not null,
  registered_at timestamptz not null default clock_timestamp(),
  reported_at   timestamptz not null default clock_timestamp()
);

-- Numbers that are kept for a scan, a rebuild, or a person who looks into something.
create table lane_hold (
  name       text primary key,
  owner      text not null,
  reason     text not null,
  from_seq   bigint not null check (from_seq > 0),
  taken_at   timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
);

-- Who let go of what.
create table lane_audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  actor  text not null,
  action text not null,
  name   text not null,
  epoch  integer,
  seq    bigint not null
);

-- Drops a partition of the outbox if it exists. Whether it may go is decided by the caller, under the shard's lock and a lock of
-- the outbox that is stronger than anybody who reads it.
create function drop_outbox_range(p_name text) returns void
language plpgsql as $$
begin
  if exists (select from pg_inherits i where i.inhparent = 'outbox'::regclass and i.inhrelid = to_regclass(quote_ident(p_name))) then
    execute format('drop table %I', p_name);
  end if;
end $$;
