-- Accounts, videos, follows and blocks, and the outbox that tells of them. Ids compare by bytes (collate "C"), as they do in the
-- service. State numbers are those of likewise.policy.v1. change_seq is the outbox number of an object's last change: numbers
-- are given under the schema's lock, so whoever sweeps by it misses nothing.

create table account (
  user_id       text collate "C" primary key,
  username      text collate "C" not null,
  state         smallint not null check (state between 2 and 5),
  is_private    boolean not null default false,
  listable      boolean not null default true,
  likes_visible smallint not null default 3 check (likes_visible between 1 and 3),
  version       bigint not null check (version > 0),
  change_seq    bigint not null,
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  deleted_at    timestamptz,
  restore_state smallint check (restore_state between 2 and 4),   -- what a restore goes back to: a ban outlives a deletion
  check ((state = 5) = (deleted_at is not null)),
  check ((state = 5) = (restore_state is not null))
);
-- A username is free again once its account is deleted.
create unique index account_username on account (username) where state <> 5;
create unique index account_change on account (change_seq);

-- One plain table: ids may be chosen by the author, and an id that tells no time cannot name its month. Partitions by month
-- come with time-ordered ids, when the timelines need them.
create table post (
  post_id        text collate "C" primary key,
  author_id      text collate "C" not null references account (user_id),
  content        text not null,
  status         smallint not null check (status between 2 and 6),
  visibility     smallint not null check (visibility between 1 and 3),
  likers_visible smallint not null check (likers_visible between 1 and 3),
  count_visible  boolean not null,
  version        bigint not null check (version > 0),
  change_seq     bigint not null,
  created_at     timestamptz not null,
  updated_at     timestamptz not null,
  deleted_at     timestamptz
);
create index post_by_author on post (author_id, created_at desc, post_id desc);
create unique index post_change on post (change_seq);

create table follow (
  follower_id text collate "C" not null references account (user_id),
  followee_id text collate "C" not null references account (user_id),
  version     bigint not null check (version > 0),
  created_at  timestamptz not null,
  deleted_at  timestamptz,
  primary key (follower_id, followee_id),
  check (follower_id <> followee_id)
);
create index follow_following on follow (follower_id, created_at desc, followee_id desc) where deleted_at is null;
create index follow_followers on follow (followee_id, created_at desc, follower_id desc) where deleted_at is null;
create index follow_followee on follow (followee_id);

create table block (
  blocker_id text collate "C" not null references account (user_id),
  blocked_id text collate "C" not null references account (user_id),
  created_at timestamptz not null,
  primary key (blocker_id, blocked_id),
  check (blocker_id <> blocked_id)
);
create index block_blocked on block (blocked_id);

-- Version of the set of accounts that an account blocks or is blocked by.
create table block_set (
  user_id text collate "C" primary key references account (user_id),
  version bigint not null check (version > 0)
);

-- What operators did, and why; written in the transaction of the act.
create table act (
  act_id  uuid primary key,
  kind    text not null,
  target  text collate "C" not null,
  actor   text not null,
  reason  text not null,
  version bigint not null,
  at      timestamptz not null
);
create index act_target on act (target, at desc);

-- Changes that wait for publication, and the log behind the stream. Rows are never updated; seq is dense and in commit order.
create table outbox (
  seq        bigint primary key check (seq > 0),
  event_id   uuid not null,
  schema     text not null,
  event      bytea not null,
  created_at timestamptz not null
);

create table outbox_publication (
  from_seq    bigint not null check (from_seq > 0),
  to_seq      bigint primary key,
  stream      text not null,
  from_offset bigint not null,
  acked_at    timestamptz not null default now(),
  check (to_seq >= from_seq)
);

create table shard_meta (
  singleton   boolean primary key default true check (singleton),
  epoch       integer not null default 0 check (epoch >= 0),
  incarnation uuid not null
);
insert into shard_meta (incarnation) values (gen_random_uuid());

create table lease (
  name       text primary key,
  owner      uuid not null,
  epoch      bigint not null,
  expires_at timestamptz not null
);
