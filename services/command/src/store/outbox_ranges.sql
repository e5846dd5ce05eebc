-- command.outbox_ranges: when the publication of some last numbers was acknowledged, in their order
select (select p.acked_at from outbox_publication p where p.to_seq >= l.seq and p.from_seq <= l.seq order by p.to_seq limit 1)
from unnest($1::bigint[]) with ordinality as l(seq, place) order by l.place
