-- consumer.advance: everything before this place is folded
update consumer_folded set owner_epoch = $3, epoch = $4, next_offset = $5 where projection = $1 and lane = $2
