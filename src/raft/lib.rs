//! Consensus: the only crate that names openraft.
