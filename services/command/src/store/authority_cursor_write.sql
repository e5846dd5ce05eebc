-- command.authority_cursor_write: everything before this was taken over
insert into authority_cursor as kept (cursor) values ($1)
on conflict (singleton) do update set cursor = excluded.cursor, read_at = now()
