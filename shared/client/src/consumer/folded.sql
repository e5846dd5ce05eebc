-- consumer.folded: how far the fold is, locked for its transaction; no row for an owner that was fenced
select epoch, next_offset from consumer_folded where projection = $1 and lane = $2 and owner_epoch <= $3 for update
