//! The executable: config files, flags, composition, command line.
fn main() {}
