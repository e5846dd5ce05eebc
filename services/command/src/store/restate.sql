-- command.restate: relations get a new version in the epoch that the shard's repair opens
select restate_relations($1, $2, $3, $4, $5)
