//! Leader-aware channel set, retries with one request id.
