-- consumer.tables_lock: one process at a time makes tables, until its transaction ends
select pg_advisory_xact_lock(hashtextextended('likewise_client.consumer', 0))
