//! `debug`: what helps to find out what is wrong.

mod admin;
mod bundle;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::args::span;
use super::context::{Context, print};
use crate::failure::Failure;

/// What can be found out.
#[derive(Debug, Subcommand)]
pub(crate) enum DebugVerb {
    /// Show what managers log, or change it while they run
    LogLevel(LogLevelArgs),
    /// Collect status, objects, metrics and log lines in one file; works with managers down
    Bundle(BundleArgs),
}

/// Where to ask.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Admin addresses of managers, comma separated
    #[arg(
        long = "admin",
        env = "QUORATE_ADMIN",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7480"
    )]
    pub(crate) addresses: Vec<String>,
}

/// `debug log-level`
#[derive(Debug, Args)]
pub(crate) struct LogLevelArgs {
    /// What to log from now on: a level, or target=level pairs, like info,quorate_raft=debug
    pub(crate) filter: Option<String>,
    /// Go back to what was logged before after this time
    #[arg(long = "for", value_name = "TIME", value_parser = span, requires = "filter")]
    pub(crate) during: Option<Duration>,
    /// Where to ask.
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// `debug bundle`
#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// The file to write; it must not exist [default: quorate-bundle-TIME.tar.zst]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
    /// Keep the values of environment variables of containers: they may be secrets
    #[arg(long)]
    pub(crate) include_env: bool,
    /// Where to ask.
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Does it.
pub(super) async fn run(context: &Context, verb: DebugVerb) -> Result<(), Failure> {
    match verb {
        DebugVerb::LogLevel(args) => log_level(context, args).await,
        DebugVerb::Bundle(args) => bundle::run(context, args).await,
    }
}

async fn log_level(context: &Context, args: LogLevelArgs) -> Result<(), Failure> {
    let during = args.during.map(|span| format!("?for={}", quorate_base::format_duration(span)));
    let path = format!("/log-level{}", during.unwrap_or_default());
    let (mut levels, mut failures) = (Vec::new(), Vec::new());
    for address in &args.admin.addresses {
        let answer = match &args.filter {
            None => admin::get(address, &path, context.admin_limit()).await,
            Some(filter) => admin::put(address, &path, filter, context.admin_limit()).await,
        };
        match answer {
            Ok(answer) if answer.status == 200 => levels.push((address, answer.text().trim().to_owned())),
            Ok(answer) => {
                let exit = if answer.status == 400 { 5 } else { 1 };
                failures.push(Failure::new(exit, format!("{address}: {}", answer.words())));
            }
            Err(why) => failures.push(
                Failure::new(9, format!("{address}: {why}"))
                    .hint("start the manager, or say where its admin port is: --admin HOST:PORT,…"),
            ),
        }
    }
    if context.json() {
        let all: Vec<_> =
            levels.iter().map(|(at, level)| json!({ "admin": at, "logLevel": level })).collect();
        context.printer.document(&all)?;
    } else {
        levels.iter().try_for_each(|(address, level)| print(&format!("{address}  {level}")))?;
    }
    Failure::of_all(failures).map_or(Ok(()), Err)
}
