//! The executable: config files, flags, composition, command line.

mod cli;
mod config;
mod daemon;
mod document;
mod failure;
mod render;
mod spec;

use std::process::ExitCode;

use clap::Parser as _;

/// The subcommand with which an agent starts the supervisor of a process.
const SHIM: &str = "agent-shim";

fn main() -> ExitCode {
    // Not a verb of people: it must start whatever flags and environment mean at that moment.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == SHIM) {
        return quorate_agent::shim_main(args);
    }
    cli::run(cli::args::Cli::parse())
}
