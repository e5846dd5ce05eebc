-- content.block_add: one account blocks another; nothing if it does already
insert into block (blocker_id, blocked_id, created_at) values ($1, $2, $3)
on conflict (blocker_id, blocked_id) do nothing returning 1
