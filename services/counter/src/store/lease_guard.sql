-- counter.lease_guard: whether the lease is still ours; the next owner cannot take it before this transaction ends.
select 1 from lease where name = $1 and epoch = $2 for share
