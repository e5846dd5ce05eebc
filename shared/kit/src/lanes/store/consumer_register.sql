-- lanes.consumer_register: names a consumer and where it goes on; also answers what was there before
with known as (select k.epoch, k.next_seq, k.ttl from lane_consumer k where k.name = $1)
insert into lane_consumer as c (name, owner, epoch, next_seq, ttl) values ($1, $2, $3, $4, make_interval(secs => $5))
on conflict (name) do update
  set owner = excluded.owner, epoch = excluded.epoch, next_seq = excluded.next_seq, ttl = excluded.ttl,
      reported_at = clock_timestamp()
returning c.reported_at + c.ttl, (select k.epoch from known k), (select k.next_seq from known k),
          (select extract(epoch from k.ttl)::double precision from known k)
