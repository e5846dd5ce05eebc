-- command.outbox_read_after: rows after a number, in order
select seq, relation_version, state_changed_at, created_at, event_id, epoch, state, previous_state, cause,
       user_id, video_id, operation_id, kind, hidden_version, hidden_reasons, previous_hidden_reasons
from outbox where seq > $1 order by seq limit $2
