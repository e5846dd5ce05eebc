-- content.lock: takes the schema's lock until the transaction ends, before anything is read
select pg_advisory_xact_lock($1, $2)
