-- command.partitions_now: what number and time it is
select (select coalesce(max(seq), 0) from outbox), clock_timestamp()
