//! The command line: what may be typed, and what each verb does.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "what documents an argument is its help: JOB[SLOT] is no link"
)]

pub(crate) mod args;
mod cluster;
pub(crate) mod complete;
mod context;
mod contexts;
mod daemon_args;
mod debug;
mod display;
mod events;
mod exec;
mod feed;
pub(crate) mod help;
mod job;
mod logs;
mod node;
mod pages;
mod plan;
mod print;
mod task;
mod task_verbs;
mod top;
mod verbs;
mod verdict;
mod wait;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use quorate_telemetry::logging::{self, Format, Identity, LogConfig};

use crate::cli::args::{
    AgentVerb, Cli, ClusterVerb, Command, Consistency, Global, JobVerb, ManagerVerb, NodeVerb, Output,
    TaskVerb,
};
use crate::cli::context::Context;
use crate::cli::print::Printer;
use crate::daemon;
use crate::failure::Failure;

/// Does what was asked for; the exit code says how it went (`quorate help exit-codes`).
pub(crate) fn run(cli: Cli) -> ExitCode {
    let (output, style) = (cli.global.output, cli.global.style());
    let stale = cli.global.consistency == Consistency::Stale;
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output had enough: nothing to say, and nobody to say it to.
        Err(Failure { broken_pipe: true, .. }) => ExitCode::SUCCESS,
        Err(Failure { quiet: true, exit, .. }) => ExitCode::from(exit),
        Err(failure) => {
            let failure = if stale { failure.without_hint("--consistency stale") } else { failure };
            let text = match output {
                Output::Jsonl => failure.to_json().to_string(),
                Output::Json | Output::Yaml => format!("{:#}", failure.to_json()),
                _ => failure.to_text(style),
            };
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(failure.exit)
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Version => version(&global),
        Command::Completion { shell } => complete::script(shell),
        Command::Man { folder } => man(&folder),
        Command::Context { verb } => contexts::run(&global, verb),
        Command::Manager { verb: ManagerVerb::Run(args) } => daemon::run_manager(&args, global.security),
        Command::Agent { verb: AgentVerb::Run(args) } => daemon::run_agent(&args, global.security),
        Command::Agent { verb: AgentVerb::Fleet(args) } => daemon::run_fleet(&args, global.security),
        verb => {
            log_verbosely(global.verbose)?;
            // The client belongs to the runtime from its first moment on.
            runtime()?.block_on(async { client_verb(verb, Context::new(global)?).await })
        }
    }
}

async fn client_verb(verb: Command, context: Context) -> Result<(), Failure> {
    let context = &context;
    match verb {
        Command::Run(args) | Command::Job { verb: JobVerb::Run(args) } => job::run(context, args).await,
        Command::Plan(args) | Command::Job { verb: JobVerb::Plan(args) } => plan::run(context, args).await,
        Command::Stop(args) | Command::Job { verb: JobVerb::Stop(args) } => job::stop(context, args).await,
        Command::Job { verb: JobVerb::Rm(args) } => job::stop(context, args.into()).await,
        Command::Job { verb: JobVerb::Wait(args) } => job::wait(context, args).await,
        Command::Scale(args) | Command::Job { verb: JobVerb::Scale(args) } => job::scale(context, args).await,
        Command::Status { job: Some(job) } | Command::Job { verb: JobVerb::Status { job } } => {
            job::status(context, &job).await
        }
        Command::Logs(args) | Command::Task { verb: TaskVerb::Logs(args) } => logs::run(context, args).await,
        Command::Top(args) => top::run(context, args).await,
        Command::Exec(args) | Command::Task { verb: TaskVerb::Exec(args) } => exec::run(context, args).await,
        Command::Task { verb: TaskVerb::Stop(args) } => task_verbs::stop(context, args).await,
        Command::Task { verb: TaskVerb::Restart(args) } => task_verbs::restart(context, args).await,
        Command::Task { verb: TaskVerb::Signal(args) } => task_verbs::signal(context, args).await,
        Command::Status { job: None } => cluster::overview(context).await,
        Command::Ps(args) | Command::Task { verb: TaskVerb::Ls(args) } => task::list(context, args).await,
        Command::Job { verb: JobVerb::Ls(args) } => job::list(context, args).await,
        Command::Job { verb: JobVerb::Inspect { job } } => job::inspect(context, &job).await,
        Command::Task { verb: TaskVerb::Inspect { task } } => task::inspect(context, &task).await,
        Command::Node { verb: NodeVerb::Ls(args) } => node::list(context, args).await,
        Command::Node { verb: NodeVerb::Inspect { node } } => node::inspect(context, &node).await,
        Command::Events(args) => events::run(context, args).await,
        Command::Cluster { verb: ClusterVerb::Status } => cluster::status(context).await,
        Command::Debug { verb } => debug::run(context, verb).await,
        // Done without a client, by the caller.
        Command::Version
        | Command::Completion { .. }
        | Command::Man { .. }
        | Command::Context { .. }
        | Command::Manager { .. }
        | Command::Agent { .. } => Ok(()),
    }
}

/// Prints help.
pub(crate) fn print_help(text: &str) -> ExitCode {
    match print::print(text) {
        Ok(()) | Err(Failure { broken_pipe: true, .. }) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.exit),
    }
}

/// One thread is enough for a client.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(1, format!("cannot start: {error}")))
}

fn log_verbosely(verbosity: u8) -> Result<(), Failure> {
    let filter = match verbosity {
        0 => return Ok(()),
        1 => "warn,quorate_client=debug",
        _ => "debug,quorate_client=trace",
    };
    let config = LogConfig { filter: filter.to_owned(), format: Format::Text, identity: Identity::Anonymous };
    logging::init(config).map(drop).map_err(|error| Failure::new(1, error.to_string()))
}

fn version(global: &Global) -> Result<(), Failure> {
    let number = env!("CARGO_PKG_VERSION");
    if global.output().is_document() {
        let value = serde_json::json!({
            "version": number,
            "api": "quorate.api.v1",
            "jobFiles": "quorate/v1",
        });
        return Printer::new(global).document(&value);
    }
    print::print(&match global.output() {
        Output::Name => number.to_owned(),
        _ => format!("quorate {number} (API quorate.api.v1, job files quorate/v1)"),
    })
}

fn man(folder: &Path) -> Result<(), Failure> {
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| Failure::new(1, format!("{}: cannot be written: {error}", folder.display())))
}
