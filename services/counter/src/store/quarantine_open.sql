-- counter.quarantine_open: open quarantine rows of one lane.
select count(*) from count_quarantine where generation = $1 and lane = $2 and closed_at is null
