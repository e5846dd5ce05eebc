-- reverse_index.part_add: places a part
insert into reverse_index_part (generation, part, server, schema_name, incarnation) values ($1, $2, $3, $4, $5)
