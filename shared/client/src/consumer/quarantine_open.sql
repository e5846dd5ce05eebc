-- consumer.quarantine_open: messages of a lane that still wait to be understood
select count(*) from consumer_quarantine where projection = $1 and lane = $2 and closed_at is null
