-- command.outbox_watermarks: highest committed and highest published number, and the time of the oldest row between them
select w.committed, w.published,
       (select o.created_at from outbox o where o.seq > w.published order by o.seq limit 1)
from (select (select coalesce(max(seq), 0) from outbox) as committed,
             (select coalesce(max(to_seq), 0) from outbox_publication) as published offset 0) w
