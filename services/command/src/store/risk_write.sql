-- command.risk_write: one target of a risk act, written or taken back
select write_risk($1, $2, $3, $4, $5, $6, $7, $8)
