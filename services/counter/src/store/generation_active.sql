-- counter.generation_active: the generation that is counted and shown.
select generation from count_projection_generation where status = 'ACTIVE'
