-- counter.fold_group: folds one group in one transaction, see the function of that name in the partition's migrations.
select outcome, relations_written, buckets_written, buckets_quarantined from fold_group(
  $1::integer, $2::integer, $3::integer, $4::integer, $5::text, $6::bigint,
  $7::integer, $8::bigint[], $9::uuid[], $10::bigint[], $11::integer[], $12::bigint[],
  $13::text[], $14::text[], $15::integer[], $16::bigint[], $17::smallint[])
