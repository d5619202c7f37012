//! A client in another language, on a real cluster: the program checks what it sees, and asks for kills.
//!
//! It says one JSON object per line (`chaos/foreign/harness.py`): what holds, what does not, and which manager is to be
//! killed or started; each of these is answered when it is done.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::check::{Rule, Violation};
use crate::cluster::Cluster;
use crate::term::{Note, Term};

/// Bound of each wait for the cluster.
const LIMIT: Duration = Duration::from_secs(60);
/// Bound of the whole program.
const PROGRAM: Duration = Duration::from_secs(300);

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Python with the packages of gRPC.
    pub python: PathBuf,
    /// Folder of the sources.
    pub root: PathBuf,
}

/// What the program says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Word {
    Says(String),
    Held(String),
    Broken(String),
    Done(bool),
    #[serde(untagged)]
    Do(Order),
}

/// What it asks for.
#[derive(Debug, Deserialize)]
struct Order {
    #[serde(rename = "do")]
    what: String,
    manager: String,
}

#[derive(Serialize)]
struct Answer {
    ok: bool,
    error: String,
}

/// Drills a cluster that is laid out. Returns what was violated.
///
/// # Errors
/// When the cluster or the program does not do its work within the bounds.
pub async fn drill(cluster: &mut Cluster, plan: &Plan, term: &Term) -> Result<Vec<Violation>> {
    term.step("Starting a cluster", async |note| {
        cluster.start()?;
        cluster.ready(LIMIT, &note).await?;
        Ok(((), "three managers and three agents".to_owned()))
    })
    .await?;
    let log = cluster.folder().join("foreign.log");
    let mut child = program(cluster, plan, &log)?;
    let told = tokio::time::timeout(PROGRAM, listen(cluster, &mut child, term)).await;
    let violations = match told {
        Ok(told) => told?,
        Err(_) => bail!("the client does not end; what it said beside: {}", tail(&log)),
    };
    let status = child.wait().await?;
    let Some(violations) = violations.filter(|_| status.success()) else {
        bail!("the client broke off ({status}): {}", tail(&log));
    };
    Ok(violations)
}

fn program(cluster: &Cluster, plan: &Plan, log: &Path) -> Result<Child> {
    let managers = cluster.managers.iter().map(|m| format!("{}={}", m.files.name, m.files.api));
    Command::new(&plan.python)
        // No byte code beside the sources.
        .arg("-B")
        .arg(plan.root.join("chaos/foreign/main.py"))
        .arg("--root")
        .arg(&plan.root)
        .args(managers)
        // Swept with the cluster, should the harness be killed: its folder is named here.
        .env("TMPDIR", cluster.folder())
        .current_dir(cluster.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(log)?)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", plan.python.display()))
}

/// Follows the program to its end. `None` when it did not say that it is done.
async fn listen(cluster: &mut Cluster, child: &mut Child, term: &Term) -> Result<Option<Vec<Violation>>> {
    let mut orders = child.stdin.take().context("no input")?;
    let mut words = BufReader::new(child.stdout.take().context("no output")?).lines();
    let (mut violations, mut held, mut done) = (Vec::new(), 0, false);
    let mut doing = "Starting the client".to_owned();
    loop {
        // Until the next thing is said, what was said last is being done.
        let Some(line) = words.next_line().await? else { break };
        match serde_json::from_str(&line).with_context(|| format!("the client said {line:?}"))? {
            Word::Says(text) => doing = text,
            Word::Held(text) => {
                held += 1;
                term.tick(&text);
            }
            Word::Broken(text) => {
                let found = Violation { rule: Rule::OthersSeeTheSame, detail: text };
                term.cross(&found.to_string());
                violations.push(found);
            }
            Word::Done(said) => done = said,
            Word::Do(order) => obey(cluster, &order, &mut orders).await.with_context(|| doing.clone())?,
        }
    }
    term.say(&format!("{held} of {} claims hold", held + violations.len()));
    Ok(done.then_some(violations))
}

async fn obey(cluster: &mut Cluster, order: &Order, answers: &mut ChildStdin) -> Result<()> {
    let done = carry_out(cluster, order).await;
    let error = done.err().map(|error| format!("{error:#}")).unwrap_or_default();
    let mut line = serde_json::to_string(&Answer { ok: error.is_empty(), error })?;
    line.push('\n');
    answers.write_all(line.as_bytes()).await.context("the client does not listen")
}

async fn carry_out(cluster: &mut Cluster, order: &Order) -> Result<()> {
    let named = |order: &Order| cluster.managers.iter().position(|m| m.files.name == order.manager);
    match order.what.as_str() {
        "settle" => cluster.ready(LIMIT, &Note::default()).await.map(drop),
        what => {
            let index = named(order).with_context(|| format!("there is no manager {}", order.manager))?;
            match what {
                "kill" => cluster.kill_manager(index).await.map(drop),
                "start" => cluster.start_manager(index).map(drop),
                other => bail!("{other:?} is no order"),
            }
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.split_at(lines.len().saturating_sub(12)).1.join("\n")
}
