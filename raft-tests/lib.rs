//! Consensus, storage and durability tests over in-process clusters.
//!
//! The tests live in `tests/it`: real gRPC on loopback, a runtime per manager
//! (so that a kill is as abrupt as that of a process), and the memory disk,
//! which loses what was not flushed when the power is cut, or sled.
