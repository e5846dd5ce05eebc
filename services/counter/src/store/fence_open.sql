-- counter.fence_open: opens fences for virtual buckets that have none here.
insert into partition_fence (generation, vbucket, route_epoch, state)
select $1, opened.vbucket, opened.route_epoch, 'ACTIVE' from unnest($2::integer[], $3::bigint[]) as opened(vbucket, route_epoch)
on conflict (generation, vbucket) do nothing
