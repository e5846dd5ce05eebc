-- reverse_index.owner_raise: fences older owners of a lane; no row while a newer one is known
insert into lane_owner_epoch as kept (generation, lane, owner_epoch) values ($1, $2, $3)
on conflict (generation, lane) do update set owner_epoch = excluded.owner_epoch
where kept.owner_epoch <= excluded.owner_epoch
returning owner_epoch
