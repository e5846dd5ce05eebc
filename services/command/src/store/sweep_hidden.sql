-- command.sweep_hidden: the next part of a sweep's second phase
select sweep_hidden($1, $2, $3, $4, $5)
