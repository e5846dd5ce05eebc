-- content.outbox_append: one event
insert into outbox (seq, event_id, schema, event, created_at) values ($1, $2, $3, $4, $5)
