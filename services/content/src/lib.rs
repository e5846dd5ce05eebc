//! The built-in authority for accounts and videos.
