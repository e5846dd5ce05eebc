-- reverse index part: the likers of the (video, reverse shard) pairs placed here. Everything is keyed by generation, so that a
-- shadow never meets the live one. Ids compare by bytes (collate "C"), as they do in the service.

create table part_identity (
  singleton   boolean primary key default true check (singleton),
  part        integer not null,
  incarnation uuid not null
);

-- What the index has applied of each relation; a row stays as a tombstone after an unlike, so that an older like cannot come
-- back. `current_liked_at` is the place of the order row and is known exactly while the relation is LIKED.
create table like_reverse_projection (
  version          bigint not null check (version > 0),
  current_liked_at timestamptz,
  generation       integer not null,
  reverse_shard    integer not null check (reverse_shard >= 0),
  state            smallint not null check (state in (1, 2)),       -- 1 LIKED, 2 UNLIKED
  video_id         text collate "C" not null,
  user_id          text collate "C" not null,
  primary key (generation, video_id, user_id),
  check ((state = 1) = (current_liked_at is not null))
) with (fillfactor = 85);

-- The list: one row per LIKED relation, at its time. The row is its key.
create table like_reverse_order (
  liked_at      timestamptz not null,
  generation    integer not null,
  reverse_shard integer not null,
  video_id      text collate "C" not null,
  user_id       text collate "C" not null
);
create unique index like_reverse_order_key on like_reverse_order (generation, video_id, reverse_shard, liked_at desc, user_id);
alter table like_reverse_order replica identity using index like_reverse_order_key;

-- Highest owner of each lane; a batch of an older owner is refused.
create table lane_owner_epoch (
  generation  integer not null,
  lane        text collate "C" not null,
  owner_epoch bigint not null,
  primary key (generation, lane)
);

-- The last message of each lane applied here: what a part that lost its tail is found out by.
create table applied (
  generation  integer not null,
  lane        text collate "C" not null,
  epoch       integer not null,
  offset_seq  bigint not null,
  event_id    uuid not null,
  primary key (generation, lane)
) with (fillfactor = 50);
