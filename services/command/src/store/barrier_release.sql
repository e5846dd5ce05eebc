-- command.barrier_release: ends a write barrier
select release_barrier($1, $2, $3, $4)
