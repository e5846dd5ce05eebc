-- command.consumer_fence: the newest owner of a consumed lane; an older one changes nothing
insert into consumer_fence as kept (projection, lane, owner_epoch) values ($1, $2, $3)
on conflict (projection, lane) do update set owner_epoch = excluded.owner_epoch
where kept.owner_epoch <= excluded.owner_epoch
