-- counter.pass_last: highest pass begun in a slice; 0 before the first.
select coalesce(max(pass), 0) from count_aggregation_pass where generation = $1 and slice = $2
