-- consumer.fence: refuses older owners of a lane; no row while a newer one is known
insert into consumer_folded as kept (projection, lane, owner_epoch) values ($1, $2, $3)
on conflict (projection, lane) do update set owner_epoch = excluded.owner_epoch
where kept.owner_epoch <= excluded.owner_epoch
returning owner_epoch
