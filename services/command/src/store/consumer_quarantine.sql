-- command.consumer_quarantine: keeps a message that could not be understood; said again, it changes nothing
insert into consumer_quarantine (projection, lane, epoch, offset_seq, event_id, schema_name, payload, reason)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict do nothing
