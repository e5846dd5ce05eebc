-- counter.partition_list: where every partition stands.
select partition, server, schema_name, incarnation from count_partition order by partition
