//! Whole-system stories on real servers.
