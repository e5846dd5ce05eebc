-- content.username_taken: whether a living account has the username
select exists (select from account where username = $1 and state <> 5 and user_id <> $2)
