-- command.scan: every relation, read in parts from one snapshot
select user_id, video_id, state, relation_version, state_changed_at, hidden_version, hidden_reasons,
       state_seq, state_epoch, hidden_seq, hidden_epoch
from like_relation
