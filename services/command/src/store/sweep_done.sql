-- command.sweep_done: forgets a finished sweep unless it was asked for again; answers what it changed
delete from account_sweep where user_id = $1 and request = $2 returning changed
