-- content.outbox_read_after: events above a number, in order
select seq, event_id, schema, event, created_at from outbox where seq > $1 order by seq limit $2
