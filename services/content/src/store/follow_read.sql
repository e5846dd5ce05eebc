-- content.follow_read: version of a follow, and whether it lives
select version, deleted_at is null from follow where follower_id = $1 and followee_id = $2
