-- counter.pass_trim: forgets the oldest passes that outlived the trace window, but never the last completed one nor those after it.
delete from count_aggregation_pass p where p.generation = $1 and p.slice = $2 and p.pass in (
  select oldest.pass from (
    select o.pass, o.started_at from count_aggregation_pass o
    where o.generation = $1 and o.slice = $2 order by o.pass limit $4) as oldest
  where oldest.started_at < $3)
  and p.pass < (select max(done.pass) from count_aggregation_pass done
                where done.generation = $1 and done.slice = $2 and done.completed_at is not null)
