//! The pure rules of Likewise. Nothing here does I/O, asks a clock, draws a random number or knows a wire type; time and
//! chance are arguments.
//!
//! Reading order: [`id`] (words), [`relation`] (the fact), [`decide`] (its decision), [`fold`] (how every
//! projection follows it), [`hash`] (frozen hash contracts), [`lane`] (offsets, positions and the gap-free prefix),
//! [`operation`] (what an operation id tells), [`merge`] (one list out of several shards), [`visibility`] (who may see
//! what).

pub mod decide;
pub mod fold;
pub mod hash;
pub mod id;
pub mod lane;
pub mod merge;
pub mod operation;
pub mod relation;
pub mod visibility;
