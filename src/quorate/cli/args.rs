//! What may be typed.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use quorate_pki::Security;

use super::complete;
pub(crate) use super::daemon_args::{AgentRunArgs, AgentVerb, FleetArgs, ManagerRunArgs, ManagerVerb};
use super::debug::DebugVerb;
use super::exec::ExecArgs;
use super::logs::LogsArgs;
use super::top::TopArgs;
pub(crate) use super::verbs::*;
use crate::render::Style;

/// What every help page ends with.
const AFTER: &str = "More help: quorate help exit-codes | environment | filters | spec";

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
    /// Which saved cluster to talk to (quorate context ls) [default: the one chosen by quorate context use]
    #[arg(
        long,
        global = true,
        env = "QUORATE_CONTEXT",
        value_name = "NAME",
        add = ArgValueCandidates::new(complete::contexts)
    )]
    pub(crate) context: Option<String>,
    /// Managers to talk to, comma separated; further ones are learned from their answers [default: 127.0.0.1:7420]
    #[arg(
        short = 'm',
        long = "manager",
        // The daemons have managers, too: not the same argument.
        id = "contact",
        global = true,
        env = "QUORATE_MANAGERS",
        value_name = "HOST:PORT",
        value_delimiter = ','
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
    /// How fresh answers must be: linearizable needs a quorum; stale works without a leader; bounded is stale within
    /// --min-revision and --max-staleness
    #[arg(
        long,
        global = true,
        env = "QUORATE_CONSISTENCY",
        value_enum,
        default_value_t = Consistency::Linearizable
    )]
    pub(crate) consistency: Consistency,
    /// Answers reflect at least this revision
    #[arg(long, global = true, value_name = "REVISION")]
    pub(crate) min_revision: Option<u64>,
    /// The manager that answers has heard of a leader within this time
    #[arg(long, global = true, value_name = "TIME", value_parser = patience)]
    pub(crate) max_staleness: Option<Duration>,
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
    /// How to show progress on standard error; auto = tty on a terminal, else plain
    #[arg(long, global = true, env = "QUORATE_PROGRESS", value_enum, default_value_t = Progress::Auto, value_name = "HOW")]
    pub(crate) progress: Progress,
    /// Do what would be asked about
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Ask nothing: fail where an answer is needed
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Say on standard error what the client does; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print names only (as -o name), and no progress
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// Whether standard error may be coloured.
    pub(crate) fn style(&self) -> Style {
        Style::new(self.color, std::io::stderr().is_terminal())
    }

    /// How results are printed: `-q` asks for names where no document is asked for.
    pub(crate) fn output(&self) -> Output {
        match self.output {
            Output::Table | Output::Wide if self.quiet => Output::Name,
            output => output,
        }
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
    /// For people
    Table,
    /// For people, with all columns
    Wide,
    /// The answer of the API as proto3 JSON
    Json,
    /// The same as YAML
    Yaml,
    /// JSON, one object a line
    Jsonl,
    /// Names only
    Name,
}

impl Output {
    /// Whether it is for programs.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Jsonl)
    }
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// As fits standard error
    Auto,
    /// Redrawn in place
    Tty,
    /// A line per change
    Plain,
    /// A JSON object per change
    Json,
    /// Not at all
    None,
}

/// How fresh answers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Reflects every write acknowledged before.
    Linearizable,
    /// Whatever the asked manager has.
    Stale,
    /// The same within bounds.
    Bounded,
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
    /// Say what job files would change, and where their tasks would go, and write nothing
    Plan(PlanArgs),
    /// Show a job and its tasks, or the whole cluster
    Status {
        /// Job, as NAME or NAMESPACE/NAME
        #[arg(add = ArgValueCandidates::new(complete::jobs))]
        job: Option<String>,
    },
    /// List tasks: where they run, or why they do not
    Ps(PsArgs),
    /// Show what a task or all tasks of a job wrote
    Logs(LogsArgs),
    /// Run a command in a task's container
    Exec(ExecArgs),
    /// Show what nodes or tasks use at the moment
    Top(TopArgs),
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
    /// Print what changes, as it happens
    Events(EventsArgs),
    /// Look at the managers
    Cluster {
        /// What to do.
        #[command(subcommand)]
        verb: ClusterVerb,
    },
    /// Find out what is wrong
    Debug {
        /// What to do.
        #[command(subcommand)]
        verb: DebugVerb,
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
    /// Save which clusters there are, and choose one
    Context {
        /// What to do.
        #[command(subcommand)]
        verb: ContextVerb,
    },
    /// Print what makes a shell complete commands, with the names of live jobs, nodes and tasks
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Into which folder; it is made where there is none
        #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        folder: std::path::PathBuf,
    },
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
        assert!(global.managers.is_empty() && global.output() == Output::Table);
        assert_eq!((global.timeout, global.consistency), (None, Consistency::Linearizable));
        assert_eq!(global.security, None);
    }

    #[test]
    fn aliases_lead_to_the_same_verb() {
        for line in ["quorate job ls", "quorate job list"] {
            assert!(matches!(parse(line).command, Command::Job { verb: JobVerb::Ls(_) }), "{line}");
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
            "quorate ps -o xml",
            "quorate ps --filter status",
            "quorate ps --progress loud",
            "quorate ps --security tls",
            "quorate launch",
        ] {
            let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
