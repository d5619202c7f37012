//! `chaos`: the demo, the drills and the benchmarks against real clusters.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum as _};
use quorate_base::{Clock, RequestIds, Rng};
use quorate_chaos::check::Violation;
use quorate_chaos::cluster::{Cluster, Plan as ClusterPlan, scratch};
use quorate_chaos::demo::runtime::{Choice, choose};
use quorate_chaos::drills::{foreign, kill_agents, kill_leader, watch};
use quorate_chaos::term::Term;
use quorate_chaos::workload::{On, Plan as WritePlan};
use quorate_chaos::{bench, demo, drills};
use tokio::signal::unix::{SignalKind, signal};

/// Real clusters of real processes: demo, drills, benchmarks.
#[derive(Debug, Parser)]
#[command(name = "chaos", version)]
struct Cli {
    /// The executable under test.
    #[arg(long, value_name = "FILE", default_value = "target/release/quorate")]
    quorate: PathBuf,
    /// Folder of the sources.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A job outlives the leader of three managers, step by step.
    Demo(DemoArgs),
    /// SIGKILL on the leader, again and again, under concurrent submits; then the check of the whole history.
    KillLeader(KillLeaderArgs),
    /// SIGKILL on agents, a task that crashes while all managers are dead, agents killed, paused and cut off under load.
    KillAgents(KillAgentsArgs),
    /// Watchers on different managers over many kills of the leader: no gap, no duplicate, the right order.
    Watch(WatchArgs),
    /// A client in Python and curl against every manager, through the loss of the leader.
    Foreign(ForeignArgs),
    /// Prints how fast things are.
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// End by itself, instead of leaving the cluster up until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// What the job runs on.
    #[arg(long, value_enum, default_value_t)]
    runtime: Choice,
    /// Keep logs, configuration and data afterwards.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct KillLeaderArgs {
    /// Kills.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// What the tasks that must not be touched run on.
    #[arg(long, value_enum, default_value_t)]
    runtime: Choice,
    /// How many there are.
    #[arg(long, default_value_t = 6)]
    standing: u32,
    /// Clients that submit jobs meanwhile.
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// Rest of a client between two jobs, in milliseconds.
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// Share of the writes that are sent twice under one request id, to different managers.
    #[arg(long, default_value_t = 0.3)]
    again: f64,
    /// Decides what clients do; drawn when absent, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep logs, configuration and data afterwards.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct KillAgentsArgs {
    /// Kills, of one agent after the other.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Rounds of kills, pauses and cuts under load; after 7 every kind has had its turn.
    #[arg(long, default_value_t = 7)]
    faults: usize,
    /// Decides what the load does; drawn when absent, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// What the tasks that must not be touched run on.
    #[arg(long, value_enum, default_value_t)]
    runtime: Choice,
    /// How many there are.
    #[arg(long, default_value_t = 6)]
    standing: u32,
    /// Keep logs, configuration and data afterwards.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct WatchArgs {
    /// Kills of the leader.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Watchers from the begin; as many again come on the way.
    #[arg(long, default_value_t = 6)]
    watchers: usize,
    /// Clients that write meanwhile.
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Decides what clients do; drawn when absent, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep logs, configuration and data afterwards.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct ForeignArgs {
    /// Python with the packages of gRPC (chaos/foreign.sh makes one).
    #[arg(long, value_name = "FILE")]
    python: PathBuf,
    /// Keep logs, configuration and data afterwards.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// Rounds; medians are printed.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Replicas of one job.
    #[arg(long, default_value_t = 1_000)]
    replicas: u32,
    /// Fake agents.
    #[arg(long, default_value_t = 10)]
    agents: u32,
    /// Numbers of clients that write at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    clients: Vec<usize>,
    /// Seconds that each number of clients writes.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Watchers of one writer.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Fake agents of the fleet; each needs an open file of two processes (ulimit -n).
    #[arg(long, default_value_t = 5_000)]
    fleet: u32,
    /// Tasks that run on the fleet and are listed.
    #[arg(long, default_value_t = 100_000)]
    tasks: u32,
    /// Seconds of nothing but heartbeats.
    #[arg(long, default_value_t = 10)]
    window: u64,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = bench::Part::value_variants().to_vec())]
    parts: Vec<bench::Part>,
}

/// How a command ended.
enum Ended {
    Held,
    Broken,
    Interrupted,
}

fn main() -> ExitCode {
    // One thread: it starts the processes, which the kernel kills when it ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.context("cannot start").and_then(|runtime| runtime.block_on(run(Cli::parse())));
    match ended {
        Ok(Ended::Held) => ExitCode::SUCCESS,
        Ok(Ended::Broken) => ExitCode::FAILURE,
        Ok(Ended::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<Ended> {
    let term = Term::stdout();
    let swept = scratch::sweep_leftovers();
    if swept > 0 {
        term.say(&format!("swept what {swept} killed runs had left behind"));
    }
    let quorate = cli.quorate.canonicalize().unwrap_or(cli.quorate);
    let root = cli.root.canonicalize().context("there is no such folder of sources")?;
    match cli.command {
        Command::Demo(args) => run_demo(quorate, root, args, &term).await,
        Command::KillLeader(args) => Box::pin(run_kill_leader(quorate, args, &term)).await,
        Command::KillAgents(args) => Box::pin(run_kill_agents(quorate, args, &term)).await,
        Command::Watch(args) => Box::pin(run_watch(quorate, args, &term)).await,
        Command::Foreign(args) => Box::pin(run_foreign(quorate, root, args, &term)).await,
        Command::Bench(args) => {
            let plan = bench::Plan {
                quorate,
                rounds: args.rounds,
                replicas: args.replicas,
                agents: args.agents,
                clients: args.clients,
                span: Duration::from_secs(args.seconds),
                watchers: args.watchers,
                fleet: args.fleet,
                tasks: args.tasks,
                window: Duration::from_secs(args.window),
                parts: args.parts,
            };
            guarded(Box::pin(async { bench::print(&plan, &term).await.map(|()| Ended::Held) })).await
        }
    }
}

async fn run_demo(quorate: PathBuf, root: PathBuf, args: DemoArgs, term: &Term) -> Result<Ended> {
    let chosen = choose(args.runtime).await?;
    let writes =
        WritePlan { writers: 4, rest: Duration::from_millis(25), seed: 1, task_every: 0, again: 0.0 };
    let mut cluster = Cluster::lay_out(three_by_three(quorate, chosen.on, true))?;
    let plan = demo::Plan { root, chosen, writes };
    let shown = guarded(Box::pin(async {
        demo::show(&mut cluster, &plan, term).await?;
        if args.exit {
            return Ok(Ended::Held);
        }
        demo::suggest(&cluster, &plan, term);
        interrupted().await.map(|()| Ended::Held)
    }))
    .await;
    finish(cluster, shown, args.keep, term).await
}

async fn run_kill_leader(quorate: PathBuf, args: KillLeaderArgs, term: &Term) -> Result<Ended> {
    let chosen = choose(args.runtime).await?;
    let seed = args.seed.unwrap_or_else(|| Rng::from_entropy().below(1_000_000));
    let writes = WritePlan {
        writers: args.writers,
        rest: Duration::from_millis(args.rest),
        seed,
        task_every: 32,
        again: args.again,
    };
    let plan = kill_leader::Plan { rounds: args.rounds, writes, on: chosen.on, standing: args.standing };
    term.say(&format!(
        "Runtime: {} ({}) · seed {seed} · {} writers",
        chosen.on.name(),
        chosen.why,
        args.writers
    ));
    let mut cluster = Cluster::lay_out(three_by_three(quorate, chosen.on, false))?;
    term.say(&format!("Logs, history and data: {}", cluster.folder().display()));
    let drilled =
        guarded(Box::pin(async { Ok(verdict(&kill_leader::drill(&mut cluster, &plan, term).await?, term)) }))
            .await;
    finish(cluster, drilled, args.keep, term).await
}

async fn run_kill_agents(quorate: PathBuf, args: KillAgentsArgs, term: &Term) -> Result<Ended> {
    let chosen = choose(args.runtime).await?;
    let seed = args.seed.unwrap_or_else(|| Rng::from_entropy().below(1_000_000));
    let (rounds, standing, faults) = (args.rounds, args.standing, args.faults);
    let plan = kill_agents::Plan { rounds, on: chosen.on, standing, faults, seed };
    term.say(&format!("Runtime: {} ({}) · seed {seed}", chosen.on.name(), chosen.why));
    let mut cluster =
        Cluster::lay_out(ClusterPlan { wired: true, ..three_by_three(quorate, chosen.on, false) })?;
    term.say(&format!("Logs, history and data: {}", cluster.folder().display()));
    let drilled =
        guarded(Box::pin(async { Ok(verdict(&kill_agents::drill(&mut cluster, &plan, term).await?, term)) }))
            .await;
    finish(cluster, drilled, args.keep, term).await
}

async fn run_watch(quorate: PathBuf, args: WatchArgs, term: &Term) -> Result<Ended> {
    let seed = args.seed.unwrap_or_else(|| Rng::from_entropy().below(1_000_000));
    let rest = Duration::from_millis(20);
    let writes = WritePlan { writers: args.writers, rest, seed, task_every: 4, again: 0.3 };
    let plan = watch::Plan { rounds: args.rounds, watchers: args.watchers, writes };
    let mut cluster = Cluster::lay_out(three_by_three(quorate, On::Fake, false))?;
    term.say(&format!("seed {seed} · Logs, history and data: {}", cluster.folder().display()));
    let drilled =
        guarded(Box::pin(async { Ok(verdict(&watch::drill(&mut cluster, &plan, term).await?, term)) })).await;
    finish(cluster, drilled, args.keep, term).await
}

async fn run_foreign(quorate: PathBuf, root: PathBuf, args: ForeignArgs, term: &Term) -> Result<Ended> {
    let plan = foreign::Plan { python: args.python, root };
    let mut cluster = Cluster::lay_out(three_by_three(quorate, On::Fake, false))?;
    term.say(&format!("Logs and data: {}", cluster.folder().display()));
    let drilled =
        guarded(Box::pin(async { Ok(verdict(&foreign::drill(&mut cluster, &plan, term).await?, term)) }))
            .await;
    finish(cluster, drilled, args.keep, term).await
}

fn verdict(violations: &[Violation], term: &Term) -> Ended {
    if violations.is_empty() {
        term.tick("every promise held");
        return Ended::Held;
    }
    term.cross(&format!("{} violations", violations.len()));
    Ended::Broken
}

fn three_by_three(quorate: PathBuf, on: On, documented_ports: bool) -> ClusterPlan {
    let runtimes = match on {
        On::Docker => vec!["docker", "process", "fake"],
        On::Process | On::Fake => vec!["process", "fake"],
    };
    ClusterPlan {
        quorate,
        managers: 3,
        agents: 3,
        runtimes,
        lease: Duration::from_secs(5),
        documented_ports,
        wired: false,
    }
}

/// The work, unless somebody asks for its end before.
async fn guarded(work: Pin<Box<dyn Future<Output = Result<Ended>> + '_>>) -> Result<Ended> {
    tokio::select! {
        ended = work => ended,
        asked = interrupted() => asked.map(|()| Ended::Interrupted),
    }
}

async fn interrupted() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        asked = tokio::signal::ctrl_c() => asked.context("cannot hear Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

/// Ends the cluster in good order, however the work went; what resists is killed with the value.
async fn finish(mut cluster: Cluster, ended: Result<Ended>, keep: bool, term: &Term) -> Result<Ended> {
    let held = matches!(ended, Ok(Ended::Held | Ended::Interrupted));
    if keep || !held {
        cluster.keep_folder();
        term.say(&format!("\nLogs, history and data are kept in {}", cluster.folder().display()));
    }
    term.heading("The end");
    let ids = RequestIds::new(Clock::system(), Rng::from_entropy());
    let stopped = term
        .step("Stopping everything that was started", async |note| {
            if let Ok(leader) = cluster.agreed_leader().await
                && let Some(api) = cluster.apis().get(leader.index)
            {
                drills::delete_all(api, &ids, Duration::from_secs(30), &note).await?;
            }
            note.set("ending the processes");
            cluster.stop().await?;
            Ok(((), "no task, no process is left".to_owned()))
        })
        .await;
    let ended = ended?;
    stopped?;
    Ok(ended)
}
