-- command.consumer_owner: the newest owner of a consumed lane, held until the end of the transaction
select owner_epoch from consumer_fence where projection = $1 and lane = $2 for share
