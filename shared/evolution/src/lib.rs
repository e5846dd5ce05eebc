//! Applies a service's schema migrations in order, once, under a lock.
