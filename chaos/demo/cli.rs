//! The product's own command line, as a user would type it, with what it prints.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::term::Term;

/// The bound of one command.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs `quorate ARGS…` from the folder `root` against the cluster, and shows the command and its output line by line.
///
/// # Errors
/// When it exits with another status than 0, or not within the bound.
pub async fn quorate(cluster: &Cluster, root: &Path, args: &[&str], term: &Term) -> Result<()> {
    term.command(&format!("quorate {}", args.join(" ")));
    let mut child = Command::new(&cluster.plan.quorate)
        .args(args)
        .env("QUORATE_MANAGERS", cluster.addresses())
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", cluster.plan.quorate.display()))?;
    let mut out = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut err = BufReader::new(child.stderr.take().context("no output")?).lines();
    let told = async {
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            tokio::select! {
                line = out.next_line(), if out_open => match line? {
                    Some(line) => term.quote(&line),
                    None => out_open = false,
                },
                line = err.next_line(), if err_open => match line? {
                    Some(line) => term.quote(&line),
                    None => err_open = false,
                },
            }
        }
        Ok::<_, anyhow::Error>(child.wait().await?)
    };
    let status = tokio::time::timeout(LIMIT, told).await.context("the command does not end")??;
    if !status.success() {
        bail!("`quorate {}` ended with {status}", args.join(" "));
    }
    Ok(())
}
