-- counter.quarantine_add: keeps messages that could not be understood; the same message again changes nothing.
insert into count_quarantine (generation, lane, epoch, offset_seq, event_id, schema_name, payload, reason)
select $1, $2, message.epoch, message.offset_seq, message.event_id, message.schema_name, message.payload, message.reason
from unnest($3::integer[], $4::bigint[], $5::uuid[], $6::text[], $7::bytea[], $8::text[])
  as message(epoch, offset_seq, event_id, schema_name, payload, reason)
on conflict (generation, lane, epoch, offset_seq) do nothing
