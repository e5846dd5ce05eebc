-- command.event_evidence: the stream that holds a number
select p.stream from outbox_publication p where p.to_seq >= $1 and p.from_seq <= $1 order by p.to_seq limit 1
