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
    cli::complete::answer();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(text) = cli::help::topic(&words) {
        return cli::print_help(text);
    }
    cli::run(cli::args::Cli::parse())
}
