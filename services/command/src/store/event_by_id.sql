-- command.event_by_id: the number of an event; no index serves it, every live partition is read
select seq from outbox where event_id = $1 limit 1
