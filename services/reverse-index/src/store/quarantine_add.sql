-- reverse_index.quarantine_add: keeps a message that was not understood; kept again, nothing changes
insert into reverse_quarantine (generation, lane, epoch, offset_seq, event_id, schema_name, payload, reason)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (generation, lane, epoch, offset_seq) do nothing
