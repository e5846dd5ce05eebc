-- reverse_index.part_list: where the parts of a generation stand, in their order
select part, server, schema_name, incarnation from reverse_index_part where generation = $1 order by part
