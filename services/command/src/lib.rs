//! The relation is the fact: commands, operations, outbox and lanes.
