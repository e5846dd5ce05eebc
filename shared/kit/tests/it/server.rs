//! A process with everything that `run` gives it, called over the network. Its stores are away: it must serve anyway.

mod calls;
mod ending;
mod identity;
mod ports;
mod rotation;
mod web;
mod world;
