-- content.block_remove: a block ends; nothing if there is none
delete from block where blocker_id = $1 and blocked_id = $2 returning 1
