//! What was committed, published and consumed, and what stands still.
