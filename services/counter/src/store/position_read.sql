-- counter.position_read: up to where rows and views of a slice are written.
select lane, epoch, next_offset from count_aggregator_position where generation = $1 and slice = $2
