-- command.barrier_acquire: grants a write barrier unless another stands
select granted, epoch, seq, until from acquire_barrier($1, $2, $3, $4, $5, $6)
