//! World simulator, in-process clusters, generators, oracles (dev only).
