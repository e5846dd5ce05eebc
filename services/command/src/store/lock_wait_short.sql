-- command.lock_wait_short: for the rest of the transaction, rather fail than keep writers waiting
set local lock_timeout = '500ms'
