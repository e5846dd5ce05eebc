-- lanes.holds_list: holds
select name, owner, reason, from_seq, taken_at, expires_at from lane_hold order by name
