//! raft-tests
