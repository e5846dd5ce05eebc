-- lanes.hold_release: ends a hold, and writes down who did
with gone as (delete from lane_hold where name = $1 returning name, from_seq)
insert into lane_audit (actor, action, name, seq) select $2, 'RELEASE_HOLD', g.name, g.from_seq from gone g
