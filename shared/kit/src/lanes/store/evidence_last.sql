-- lanes.evidence_last: highest number known to be published
select coalesce(max(to_seq), 0) from outbox_publication
