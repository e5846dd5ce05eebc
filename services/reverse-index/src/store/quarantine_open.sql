-- reverse_index.quarantine_open: messages of a lane that wait for a repair
select count(*) from reverse_quarantine where generation = $1 and lane = $2 and closed_at is null
