-- lanes.consumers_list: registered consumers
select name, owner, epoch, next_seq, registered_at, reported_at, reported_at + ttl from lane_consumer order by name
