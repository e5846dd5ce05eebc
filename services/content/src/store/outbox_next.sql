-- content.outbox_next: the next number of the outbox
select coalesce(max(seq), 0) + 1 from outbox
