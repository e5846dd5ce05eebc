-- What risk acts write into a shard.

-- Writes one target of an act, or takes it back, and asks for a sweep where counts are concerned. p_kind: 1 exclude, 2 freeze,
-- 3 both. Done twice it changes nothing but asks for the sweep again.
create function write_risk(p_lock_class integer, p_shard integer, p_act text, p_kind smallint, p_user text, p_video text,
                           p_until timestamptz, p_takes_back boolean) returns void
language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(p_lock_class, p_shard);
  if p_takes_back then
    delete from risk_state s where s.act_id = p_act and s.user_id = p_user and s.video_id = p_video;
  else
    insert into risk_state (act_id, user_id, video_id, kind, frozen_until)
    select p_act, p_user, p_video, k.kind, case when k.kind = 2 then p_until end
    from unnest(array[1, 2]::smallint[]) as k(kind) where p_kind & k.kind <> 0
    on conflict do nothing;
  end if;
  if p_kind & 1 <> 0 then
    insert into account_sweep as asked (user_id, phase) values (p_user, 2)
    on conflict (user_id) do update
    set request = asked.request + 1, requested_at = now(), claimed_till = '-infinity', changed = 0, after_video = '';
  end if;
end $$;
