-- counter.partition_add: places a partition unless it is placed; the stored placement wins.
insert into count_partition (partition, server, schema_name, incarnation)
values ($1, $2, $3, $4)
on conflict (partition) do nothing
