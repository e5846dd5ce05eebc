-- counter.partition_add: places a partition unless it is placed; the stored placement wins.
-- No conflict target: two that place the same at once may meet in either unique index. Who calls reads the placements again.
insert into count_partition (partition, server, schema_name, incarnation)
values ($1, $2, $3, $4)
on conflict do nothing
