-- lanes.consumer_release: forgets a consumer, and writes down who did
with gone as (delete from lane_consumer where name = $1 returning name, epoch, next_seq)
insert into lane_audit (actor, action, name, epoch, seq) select $2, 'RELEASE_CONSUMER', g.name, g.epoch, g.next_seq from gone g
