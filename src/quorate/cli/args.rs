//! What may be typed.

use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use quorate_pki::Security;

pub(crate) use super::daemon_args::{AgentRunArgs, AgentVerb, FleetArgs, ManagerRunArgs, ManagerVerb};
use crate::document::Format;
use crate::render::Style;

/// What every help page ends with.
const AFTER: &str = "The exit codes: quorate help exit-codes";

/// What each exit code means.
pub(crate) const EXIT_CODES: &str = "\
CODE  MEANING
   0  done (and converged, where the command waited)
   1  failed, not classified
   2  usage
   3  accepted, but not all tasks can be placed
   4  the job failed, or replicas gave up
   5  invalid file or argument
   6  not found
   7  conflict: the etag moved, or it exists already
   8  permission denied
   9  no leader, no quorum, unreachable or out of time (retry is sensible)
  12  cluster status: works, but tolerates no further failure
 130  interrupted while waiting; the work goes on";

/// A highly available control plane for containers.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, after_help = AFTER, arg_required_else_help = true, max_term_width = 120)]
pub(crate) struct Cli {
    /// Understood by every verb.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The verb.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every verb that talks to a cluster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Managers to talk to, comma separated; further ones are learned from their answers
    #[arg(
        short = 'm',
        long = "manager",
        // The daemons have managers, too: not the same argument.
        id = "contact",
        global = true,
        env = "QUORATE_MANAGERS",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7420"
    )]
    pub(crate) managers: Vec<String>,
    /// Namespace; where several are listed, the only one to list
    #[arg(short = 'n', long, global = true, env = "QUORATE_NAMESPACE", value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How to print results
    #[arg(short = 'o', long, global = true, env = "QUORATE_OUTPUT", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// The most that the command takes [default: 10s, or 5m where it waits for tasks]
    #[arg(long, global = true, value_name = "TIME", value_parser = patience)]
    pub(crate) timeout: Option<Duration>,
    /// How fresh answers must be: linearizable needs a quorum, stale works without a leader
    #[arg(
        long,
        global = true,
        env = "QUORATE_CONSISTENCY",
        value_enum,
        default_value_t = Consistency::Linearizable
    )]
    pub(crate) consistency: Consistency,
    /// Names this write: repeating it with the same id does it once
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    /// What protects the traffic: plaintext-loopback, or plaintext-anywhere for networks protected otherwise [default:
    /// plaintext-loopback]
    #[arg(long, global = true, env = "QUORATE_SECURITY", value_name = "WHAT")]
    pub(crate) security: Option<Security>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub(crate) color: Colour,
    /// Say on standard error what the client does; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print names only, and no progress
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// Whether standard error may be coloured.
    pub(crate) fn style(&self) -> Style {
        Style::new(self.color)
    }
}

/// A duration as a flag.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    quorate_base::parse_duration(text).map_err(|error| error.to_string())
}

/// A time that something may take: none at all allows nothing.
fn patience(text: &str) -> Result<Duration, String> {
    let given = span(text)?;
    if given.is_zero() { Err("must be longer than 0s".to_owned()) } else { Ok(given) }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// The answer of the API as proto3 JSON.
    Json,
}

/// How fresh answers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Reflects every write acknowledged before.
    Linearizable,
    /// Whatever the asked manager has.
    Stale,
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Submit job files and wait until they run
    Run(RunArgs),
    /// Show a job and its tasks, or the whole cluster
    Status {
        /// Job, as NAME or NAMESPACE/NAME
        job: Option<String>,
    },
    /// List tasks: where they run, or why they do not
    Ps(PsArgs),
    /// Stop jobs
    Stop(StopArgs),
    /// Set the replicas of services
    Scale(ScaleArgs),
    /// Work with jobs
    Job {
        /// What to do.
        #[command(subcommand)]
        verb: JobVerb,
    },
    /// Work with tasks
    Task {
        /// What to do.
        #[command(subcommand)]
        verb: TaskVerb,
    },
    /// Work with nodes
    Node {
        /// What to do.
        #[command(subcommand)]
        verb: NodeVerb,
    },
    /// Look at the managers
    Cluster {
        /// What to do.
        #[command(subcommand)]
        verb: ClusterVerb,
    },
    /// Run a manager
    Manager {
        /// What to do.
        #[command(subcommand)]
        verb: ManagerVerb,
    },
    /// Run an agent
    Agent {
        /// What to do.
        #[command(subcommand)]
        verb: AgentVerb,
    },
    /// Print the version
    Version,
    /// What each exit code means
    #[command(name = "exit-codes", hide = true, about = EXIT_CODES, help_template = "{about}")]
    ExitCodes,
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// List jobs
    #[command(alias = "list")]
    Ls,
    /// Print everything about a job as JSON
    #[command(alias = "get")]
    Inspect {
        /// Job, as NAME or NAMESPACE/NAME
        job: String,
    },
    /// Submit job files and wait until they run
    Run(RunArgs),
    /// Stop jobs
    Stop(StopArgs),
    /// Set the replicas of services
    Scale(ScaleArgs),
}

/// What can be done with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// List tasks: where they run, or why they do not
    #[command(alias = "list")]
    Ls(PsArgs),
    /// Print everything about a task as JSON
    #[command(alias = "get")]
    Inspect {
        /// Task, like t42
        task: String,
    },
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// List nodes
    #[command(alias = "list")]
    Ls,
    /// Print everything about a node as JSON
    #[command(alias = "get")]
    Inspect {
        /// Node
        node: String,
    },
}

/// What can be done with the managers.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Ask every manager what it knows: who leads, how far each is, who disagrees. Works without a leader
    Status,
}

/// `run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Job files, folders of them, or - for standard input
    #[arg(required_unless_present = "more", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// The same as FILE
    #[arg(short = 'f', long = "file", value_name = "FILE", id = "more")]
    pub(crate) more: Vec<String>,
    /// Format of the files, where their names do not tell it
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Submit only if the stored job still has this etag; 0 = only if there is none
    #[arg(long)]
    pub(crate) etag: Option<String>,
    /// Check the files, also by the managers, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait for the tasks
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// `ps`
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only of this job, as NAME or NAMESPACE/NAME
    pub(crate) job: Option<String>,
    /// Also tasks that ended, below their successors
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only on this node
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
}

/// `stop`
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Jobs, as NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Forget the jobs and their history once their tasks are gone
    #[arg(long)]
    pub(crate) purge: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Do not wait until the tasks are gone
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// `scale`
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Services and their new number of replicas
    #[arg(required = true, value_name = "JOB=REPLICAS")]
    pub(crate) targets: Vec<String>,
    /// Do not wait for the tasks
    #[arg(short, long)]
    pub(crate) detach: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(line.split_whitespace()).unwrap()
    }

    /// The arguments of `manager run`.
    pub(crate) fn manager_run(flags: &str) -> ManagerRunArgs {
        match parse(&format!("quorate manager run {flags}")).command {
            Command::Manager { verb: ManagerVerb::Run(args) } => *args,
            other => panic!("{other:?}"),
        }
    }

    /// The arguments of `agent run`.
    pub(crate) fn agent_run(flags: &str) -> AgentRunArgs {
        match parse(&format!("quorate agent run {flags}")).command {
            Command::Agent { verb: AgentVerb::Run(args) } => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_may_stand_before_and_after_the_verb() {
        for line in [
            "quorate -m a:1,b:2 -n shop -o json --timeout 30s ps web -a",
            "quorate ps web -a -m a:1 -m b:2 -n shop -o json --timeout 30s",
        ] {
            let cli = parse(line);
            assert_eq!(cli.global.managers, ["a:1", "b:2"]);
            assert_eq!((cli.global.namespace.as_deref(), cli.global.output), (Some("shop"), Output::Json));
            assert_eq!(cli.global.timeout, Some(Duration::from_secs(30)));
            let Command::Ps(args) = cli.command else { panic!("{line}") };
            assert!(args.all && args.job.as_deref() == Some("web"));
        }
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let global = parse("quorate version").global;
        assert_eq!(global.managers, ["127.0.0.1:7420"]);
        assert_eq!((global.timeout, global.consistency), (None, Consistency::Linearizable));
        assert_eq!(global.security, None);
    }

    #[test]
    fn aliases_lead_to_the_same_verb() {
        for line in ["quorate job ls", "quorate job list"] {
            assert!(matches!(parse(line).command, Command::Job { verb: JobVerb::Ls }), "{line}");
        }
        for line in ["quorate node inspect n1", "quorate node get n1"] {
            assert!(
                matches!(parse(line).command, Command::Node { verb: NodeVerb::Inspect { .. } }),
                "{line}"
            );
        }
        let Command::Run(args) = parse("quorate run a.yaml -f b.yaml -d").command else { panic!() };
        assert_eq!(
            (args.files, args.more, args.detach),
            (vec!["a.yaml".into()], vec!["b.yaml".into()], true)
        );
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for line in [
            "quorate",
            "quorate run",
            "quorate stop",
            "quorate scale",
            "quorate ps --timeout 5",
            "quorate ps --timeout 0s",
            "quorate ps -o yaml",
            "quorate ps --security tls",
            "quorate launch",
        ] {
            let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
