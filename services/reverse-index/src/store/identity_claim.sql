-- reverse_index.identity_claim: says which part this schema is, unless it already is one, and answers which it is
with claimed as (
  insert into part_identity (part, incarnation) values ($1, $2) on conflict (singleton) do nothing
  returning part, incarnation)
select part, incarnation from claimed
union all
select part, incarnation from part_identity
