-- content.account_write: an account as it is now
insert into account as kept (user_id, username, state, is_private, listable, likes_visible, version, change_seq,
  created_at, updated_at, deleted_at, restore_state)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11)
on conflict (user_id) do update set username = excluded.username, state = excluded.state,
  is_private = excluded.is_private, listable = excluded.listable, likes_visible = excluded.likes_visible,
  version = excluded.version, change_seq = excluded.change_seq, updated_at = excluded.updated_at,
  deleted_at = excluded.deleted_at, restore_state = excluded.restore_state
where kept.version < excluded.version
