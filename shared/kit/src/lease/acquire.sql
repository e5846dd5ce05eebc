-- lease.acquire: takes a lease that is free, expired or already ours; a new or late owner gets the next epoch
insert into lease as held (name, owner, epoch, expires_at)
values ($1, $2, 1, clock_timestamp() + $3 * interval '1 millisecond')
on conflict (name) do update set
    owner = excluded.owner,
    expires_at = excluded.expires_at,
    epoch = case
        when held.owner = excluded.owner and held.expires_at > clock_timestamp() then held.epoch
        else held.epoch + 1
    end
where held.owner = excluded.owner or held.expires_at <= clock_timestamp()
returning epoch
