-- consumer.quarantine_add: keeps messages that were not understood
insert into consumer_quarantine (projection, lane, epoch, offset_seq, event_id, schema_name, payload, reason)
select $1, $2, * from unnest($3::integer[], $4::bigint[], $5::uuid[], $6::text[], $7::bytea[], $8::text[])
on conflict do nothing
