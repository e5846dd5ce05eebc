-- counter.identity_add: gives a new partition its identity; one that has one keeps it.
insert into partition_identity (partition, incarnation) values ($1, $2) on conflict do nothing
