-- command.authority_cursor_read: where the shard's reading of the authority's changes goes on
select c.cursor from authority_cursor c
