-- command.partitions_list: names of all partitions
select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('like_command'::regclass, 'outbox'::regclass)
