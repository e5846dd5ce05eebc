-- reverse_index.fold: applies what one batch brings to this part: tombstones, order rows and the lane's place, or nothing if fenced
-- A higher version wins. An order row is removed exactly where it stands, and one whose time did not change stays: a delete
-- and an insert of one key in one statement have no order. Relations come sorted, one row each; liked_at is null for UNLIKED.
with fence as materialized (
  select from lane_owner_epoch o where o.generation = $1 and o.lane = $2 and o.owner_epoch = $3 for share),
item as materialized (
  select i.video_id, i.user_id, i.reverse_shard, i.version, i.liked_at
  from unnest($4::text[], $5::text[], $6::integer[], $7::bigint[], $8::timestamptz[])
    as i(video_id, user_id, reverse_shard, version, liked_at)
  where exists (select from fence)),
folded as (
  insert into like_reverse_projection as kept (generation, video_id, user_id, reverse_shard, version, state, current_liked_at)
  select $1, i.video_id, i.user_id, i.reverse_shard, i.version, case when i.liked_at is null then 2 else 1 end, i.liked_at
  from item i
  on conflict (generation, video_id, user_id) do update
    set version = excluded.version, state = excluded.state, current_liked_at = excluded.current_liked_at
    where kept.version < excluded.version
  returning new.video_id, new.user_id, new.reverse_shard, old.current_liked_at as liked_before, new.current_liked_at as liked_now),
moved as materialized (
  select f.* from folded f where f.liked_before is distinct from f.liked_now),
stale as materialized (
  select hit.place from moved m cross join lateral (
    select o.ctid as place from like_reverse_order o
    where o.generation = $1 and o.video_id = m.video_id and o.reverse_shard = m.reverse_shard
      and o.liked_at = m.liked_before and o.user_id = m.user_id
    offset 0) as hit),
removed as (
  delete from like_reverse_order o using stale where o.ctid = stale.place returning 1),
listed as (
  insert into like_reverse_order (generation, video_id, reverse_shard, liked_at, user_id)
  select $1, m.video_id, m.reverse_shard, m.liked_now, m.user_id from moved m where m.liked_now is not null
  on conflict (generation, video_id, reverse_shard, liked_at, user_id) do nothing returning 1),
placed as (
  insert into applied as kept (generation, lane, epoch, offset_seq, event_id)
  select $1, $2, $9, $10, $11 from fence
  on conflict (generation, lane) do update
    set epoch = excluded.epoch, offset_seq = excluded.offset_seq, event_id = excluded.event_id
    where (kept.epoch, kept.offset_seq) < (excluded.epoch, excluded.offset_seq))
select (select count(*) from fence), (select count(*) from folded), (select count(*) from removed), (select count(*) from listed)
