//! Durable bytes: log, vote and image files; sled backend, faulty memory backend.
