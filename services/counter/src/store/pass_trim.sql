-- counter.pass_trim: forgets passes older than the trace window, but never the last completed one nor those after it.
delete from count_aggregation_pass p where p.generation = $1 and p.slice = $2 and p.started_at < $3
  and p.pass < (select max(done.pass) from count_aggregation_pass done
                where done.generation = $1 and done.slice = $2 and done.completed_at is not null)
