//! The security seam: how every server listens and every client connects.
