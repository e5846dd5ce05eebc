//! Fast, honest reads of likes and counts.
