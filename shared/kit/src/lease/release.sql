-- lease.release: lets the next owner in at once; the epoch stays, so the next one is higher
update lease set expires_at = clock_timestamp()
where name = $1 and owner = $2 and epoch = $3 and expires_at > clock_timestamp()
