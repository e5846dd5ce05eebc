-- command.consumer_quarantined: messages in quarantine that are still open
select count(*) from consumer_quarantine where projection = $1 and lane = $2 and closed_at is null
