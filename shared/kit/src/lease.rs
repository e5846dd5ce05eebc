//! Leases: one owner at a time of something named, by the clock of the database.
