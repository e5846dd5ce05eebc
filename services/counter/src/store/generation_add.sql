-- counter.generation_add: adds a projection generation as a shadow unless it is there.
insert into count_projection_generation (generation, bucket_space_version, lanes, status)
values ($1, $2, $3, 'SHADOW')
on conflict (generation) do nothing
