-- command.operation_kept: what is kept of an operation beside its verdict
select c.base_version, c.client_sequence, c.device_hash from like_command c
where c.user_id = $1 and c.operation_id = $2
  and c.op_time >= coalesce($3::timestamptz, '-infinity') and c.op_time <= coalesce($3::timestamptz, 'infinity')
limit 1
