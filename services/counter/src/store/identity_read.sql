-- counter.identity_read: who this partition is.
select partition, incarnation from partition_identity
