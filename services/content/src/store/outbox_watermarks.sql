-- content.outbox_watermarks: committed and published, and the oldest event without evidence
select o.committed, p.published,
  (select min(w.created_at) from outbox w where w.seq = p.published + 1 and p.published < o.committed)
from (select coalesce(max(seq), 0) as committed from outbox) o,
     (select coalesce(max(to_seq), 0) as published from outbox_publication) p
