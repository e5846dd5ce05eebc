-- command.sweep_relations: the next part of a sweep's first phase
select sweep_relations($1, $2, $3, $4, $5)
