-- command.apply_commands: decides and writes one batch under the shard's lock
select * from apply_commands($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
