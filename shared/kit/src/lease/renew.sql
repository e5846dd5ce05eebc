-- lease.renew: prolongs a lease that is still ours and has not expired
update lease set expires_at = clock_timestamp() + $4 * interval '1 millisecond'
where name = $1 and owner = $2 and epoch = $3 and expires_at > clock_timestamp()
