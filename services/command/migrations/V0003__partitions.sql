-- Makes and drops partitions. Called under the shard's lock, so that no batch of any process is in flight: what a partition's
-- creation or removal waits for is a reader at most.

-- A partition of like_command or outbox; one that exists already stays as it is.
create function make_partition(p_parent text, p_name text, p_from text, p_to text) returns void
language plpgsql as $$
begin
  if p_parent not in ('like_command', 'outbox') then
    raise exception '% has no partitions', p_parent using errcode = 'invalid_parameter_value';
  end if;
  execute format('create table if not exists %I partition of %I for values from (%L) to (%L)', p_name, p_parent, p_from, p_to);
end $$;

-- Drops a partition of like_command if it exists. An id that tells a time is refused before its week can go, so no verdict is
-- needed that is gone.
create function drop_operation_week(p_name text) returns void
language plpgsql as $$
begin
  if exists (select from pg_inherits i where i.inhparent = 'like_command'::regclass and i.inhrelid = to_regclass(quote_ident(p_name))) then
    execute format('drop table %I', p_name);
  end if;
end $$;
