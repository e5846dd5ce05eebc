-- command.barrier_prove: whether a write barrier stands and nothing was written
select holds, problem, epoch, seq, until from prove_barrier($1, $2, $3, $4)
