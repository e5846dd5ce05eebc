-- command.partition_make: makes a partition; one that exists stays as it is
select make_partition($1, $2, $3, $4)
