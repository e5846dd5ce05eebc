-- command.shard_accept_server: takes the server the shard is on as its own
update shard_meta set system_identifier = $1, timeline_id = $2
