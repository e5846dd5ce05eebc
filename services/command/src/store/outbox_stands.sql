-- command.outbox_stands: highest committed and highest published number, whether the shard serves, and what time it is
select (select coalesce(max(o.seq), 0) from outbox o), (select coalesce(max(p.to_seq), 0) from outbox_publication p),
       m.status = 'SERVING', clock_timestamp()
from shard_meta m
