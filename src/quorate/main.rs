//! The executable: config files, flags, composition, command line.

mod cli;
mod document;
mod failure;
mod render;
mod spec;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::run(cli::args::Cli::parse())
}
