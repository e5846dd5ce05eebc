-- counter.pass_complete: completes the passes that this owner began and that hold nothing back any more. An earlier owner's unfinished
-- pass stays unfinished: nobody knows what it left out.
update count_aggregation_pass set completed_at = now()
where generation = $1 and slice = $2 and pass > $3 and pass <= $4 and completed_at is null
