//! The executable: config files, flags, composition, command line.

mod document;
mod spec;

fn main() {}
