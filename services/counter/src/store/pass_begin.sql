-- counter.pass_begin: records a pass with the vector it was begun with and the rows written with it.
insert into count_aggregation_pass (generation, slice, pass, lanes, epochs, next_offsets, videos, started_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)
