//! All six services in one process on one port.
