//! Finds or provisions real PostgreSQL, NATS and Redis and runs them for development and tests.
