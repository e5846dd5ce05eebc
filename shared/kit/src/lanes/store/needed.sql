-- lanes.needed: how many consumers are registered and heard, the first number that one of them or a hold keeps, and whose it
-- is. A consumer of an older epoch still needs what the later ones begin with.
with heard as (
  select c.name, least(c.next_seq, (select min(e.first_seq) from lane_epoch e where e.epoch > c.epoch)) as seq
  from lane_consumer c where c.reported_at + c.ttl > clock_timestamp()),
kept as (
  select h.seq, h.name from heard h
  union all
  select k.from_seq, k.name from lane_hold k where k.expires_at > clock_timestamp()),
first as (select k.seq, k.name from kept k order by k.seq, k.name limit 1)
select (select count(*) from heard), f.seq, f.name from (select) one left join first f on true
