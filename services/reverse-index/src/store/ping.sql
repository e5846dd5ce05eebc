-- reverse_index.ping: does the server answer
select 1
