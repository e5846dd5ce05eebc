-- The ledger of risk acts. Kinds: 1 EXCLUDE, 2 FREEZE, 3 REVOKE, 4 RESTORE. Status: 1 PROPOSED, 2 RUNNING, 3 APPLIED,
-- 4 REJECTED, 5 RESTORED.
create table risk_act (
  created_at     timestamptz not null default clock_timestamp(),
  decided_at     timestamptz,
  applied_at     timestamptz,
  frozen_until   timestamptz,
  claimed_till   timestamptz not null default '-infinity',
  liked_before   bigint,
  counted_before bigint,
  liked_after    bigint,
  counted_after  bigint,
  targets        integer not null check (targets > 0),
  kind           smallint not null check (kind between 1 and 4),
  status         smallint not null check (status between 1 and 5),
  act_id         uuid primary key,
  restores       uuid references risk_act,
  reason         text not null,
  evidence       text not null,
  requester      text not null,
  approver       text not null default '',
  check ((kind = 4) = (restores is not null))
);
create index risk_act_newest on risk_act (created_at desc, act_id desc);
create index risk_act_running on risk_act (claimed_till) where status = 2;
-- An act is undone once.
create unique index risk_act_restores on risk_act (restores) where status in (1, 2, 3);

create table risk_act_target (
  act_id   uuid not null references risk_act,
  place    integer not null,
  done     boolean not null default false,
  user_id  text collate "C" not null,
  video_id text collate "C" not null,
  primary key (act_id, place)
);
