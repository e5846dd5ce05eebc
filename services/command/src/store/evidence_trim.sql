-- command.evidence_trim: forgets the publication of numbers that the outbox no longer has
delete from outbox_publication p
where p.to_seq in (
  select e.to_seq from outbox_publication e where e.to_seq < (select min(o.seq) from outbox o) order by e.to_seq limit $1)
