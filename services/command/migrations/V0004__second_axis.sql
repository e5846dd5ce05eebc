-- The second axis of a relation (whether the like counts), risk acts, and sweeps over the relations of one account.

alter table like_relation
  add column hidden_version bigint not null default 0,     -- of the second axis
  add column hidden_seq     bigint not null default 0,     -- outbox number of its last change, and
  add column hidden_epoch   integer not null default 0,    -- the epoch that number belongs to
  add column hidden_reasons smallint not null default 0 check (hidden_reasons between 0 and 3);   -- 1 RISK, 2 POLICY
-- What the deletion of an account took, and its restore gives back.
create index like_relation_taken on like_relation (user_id) where state = 2 and cause = 2;

-- Kind 1 is RelationChanged, kind 2 RelationHiddenChanged, which tells the state and version of the relation as they are.
alter table outbox
  add column hidden_version          bigint not null default 0,
  add column kind                    smallint not null default 1 check (kind in (1, 2)),
  add column hidden_reasons          smallint not null default 0,
  add column previous_hidden_reasons smallint not null default 0;

-- What risk acts say, written under the shard's lock and read by every batch. Empty ids stand for every video of the user or
-- every user of the video; a freeze past its end counts no more.
create table risk_state (
  frozen_until timestamptz,
  written_at   timestamptz not null default now(),
  kind         smallint not null check (kind in (1, 2)),   -- 1 exclude from counts, 2 freeze
  user_id      text collate "C" not null,
  video_id     text collate "C" not null,
  act_id       text collate "C" not null,
  primary key (user_id, video_id, kind, act_id),
  check (user_id <> '' or video_id <> ''),
  check (kind = 2 or (user_id <> '' and frozen_until is null))
);

-- Work over all relations of one account: after its state changed, or a risk act did. First relations are taken or given back
-- (phase 1), then the second axis is brought in line (phase 2). Every request starts the sweep over and has a new number, so
-- that whoever was at work on an older one cannot call it done.
create table account_sweep (
  request      bigint not null default 1,
  requested_at timestamptz not null default now(),
  claimed_till timestamptz not null default '-infinity',
  changed      bigint not null default 0,                  -- relations changed since the request
  phase        smallint not null default 1 check (phase in (1, 2)),
  user_id      text collate "C" primary key,
  after_video  text collate "C" not null default ''        -- last relation seen in phase 2
);
create index account_sweep_due on account_sweep (requested_at);

-- Reasons by which an account's state hides its likes from counts: deactivated (3) and banned (4) accounts.
create function account_hides(p_state smallint) returns smallint
language sql immutable
return case when p_state in (3, 4) then 2 else 0 end;
