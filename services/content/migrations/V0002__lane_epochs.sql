-- Epochs of the lane, and what the shard knows about itself: the columns that every published shard has.
alter table shard_meta
  add column status            text not null default 'SERVING' check (status in ('SERVING', 'REPAIRING', 'MOVED')),
  add column system_identifier bigint,                     -- not recorded here: no writer of this service depends on it
  add column timeline_id       integer;

create table lane_epoch (
  epoch     integer primary key check (epoch >= 0),
  first_seq bigint not null check (first_seq > 0),
  began_at  timestamptz not null default clock_timestamp(),
  served_at timestamptz,
  lost      bigint not null default 0,
  restated  bigint not null default 0
);
insert into lane_epoch (epoch, first_seq, served_at) values (0, 1, clock_timestamp());
