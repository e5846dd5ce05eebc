-- counter.owner_raise: raises the owner of a lane, never lowers it; answers the highest.
insert into lane_owner_epoch as kept (generation, lane, owner_epoch) values ($1, $2, $3)
on conflict (generation, lane) do update set owner_epoch = greatest(kept.owner_epoch, excluded.owner_epoch)
returning owner_epoch
