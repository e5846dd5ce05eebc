-- command.partition_drop: drops a week of operations if it is there
select drop_operation_week($1)
