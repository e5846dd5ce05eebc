-- lanes.evidence_record: says that a range of numbers is in the stream; said again, it changes nothing
insert into outbox_publication (from_seq, to_seq, stream, from_offset, acked_at)
values ($1, $2, $3, $1, now())
on conflict (to_seq) do nothing
