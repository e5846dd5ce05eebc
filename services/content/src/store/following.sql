-- content.following: whom an account follows, newest first
select followee_id, created_at from follow
where follower_id = $1 and deleted_at is null and (created_at, followee_id) < ($2, $3)
order by created_at desc, followee_id desc limit $4
