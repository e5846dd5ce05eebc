-- command.outbox_drop: drops a range of the outbox if it is there
select drop_outbox_range($1)
