-- content.followers: who follows an account, newest first
select follower_id, created_at from follow
where followee_id = $1 and deleted_at is null and (created_at, follower_id) < ($2, $3)
order by created_at desc, follower_id desc limit $4
