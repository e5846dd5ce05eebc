-- content.act_insert: what an operator did, and why
insert into act (act_id, kind, target, actor, reason, version, at) values ($1, $2, $3, $4, $5, $6, $7)
