//! Migrations of the service's schemas, in order.

use likewise_evolution::Migration;

/// Schema `counter`.
pub const METADATA: &[Migration] =
    &[Migration { name: "V0001__counter", sql: include_str!("../migrations/metadata/V0001__counter.sql") }];

/// Schemas `counter_pNN`.
pub const PARTITION: &[Migration] =
    &[Migration { name: "V0001__partition", sql: include_str!("../migrations/partition/V0001__partition.sql") }];
