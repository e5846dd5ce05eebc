-- lanes.shard_moved: the shard lives elsewhere; it takes no changes here any more
update shard_meta set status = 'MOVED' where epoch = $1 and status = 'SERVING'
