//! What each verb takes.

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;

use super::complete;
use super::exec::ExecArgs;
use super::logs::LogsArgs;
use super::task_verbs::{SignalArgs, TaskWriteArgs};
use crate::document::Format;
use crate::render::table::Filter;

/// How lists are chosen and laid out.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListArgs {
    /// Only objects whose labels match, like app=web,tier!=db
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Only rows with one of these values, like status=running,pending or node!=n1; repeatable, all must hold
    #[arg(long = "filter", value_name = "COLUMN=VALUE,…")]
    pub(crate) filters: Vec<Filter>,
    /// Sort by this column; downwards with - before it
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub(crate) sort_by: Option<String>,
    /// Show these columns, in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Without headings
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Go on with what changes, until Ctrl-C: redrawn on a terminal, else a line per change
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// List jobs
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Print everything about a job as JSON
    #[command(alias = "get")]
    Inspect {
        /// Job, as NAME or NAMESPACE/NAME
        #[arg(add = ArgValueCandidates::new(complete::jobs))]
        job: String,
    },
    /// Show a job and its tasks
    Status {
        /// Job, as NAME or NAMESPACE/NAME
        #[arg(add = ArgValueCandidates::new(complete::jobs))]
        job: String,
    },
    /// Submit job files and wait until they run
    Run(RunArgs),
    /// Say what job files would change, and write nothing
    Plan(PlanArgs),
    /// Wait until jobs are as wanted, or gone: what an interrupted command did
    Wait(WaitArgs),
    /// Stop jobs
    Stop(StopArgs),
    /// Stop jobs and forget them: stop --purge
    #[command(alias = "delete")]
    Rm(RmArgs),
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
        /// Task, as an id like t42, or JOB[SLOT]
        #[arg(add = ArgValueCandidates::new(complete::tasks))]
        task: String,
    },
    /// Show what a task wrote
    Logs(LogsArgs),
    /// Run a command in a task's container
    Exec(ExecArgs),
    /// Stop tasks; their jobs get others in their places
    Stop(TaskWriteArgs),
    /// Restart tasks in place, on their nodes
    Restart(TaskWriteArgs),
    /// Send a task's main process a signal
    Signal(SignalArgs),
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// List nodes
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Print everything about a node as JSON
    #[command(alias = "get")]
    Inspect {
        /// Node
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
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
    #[arg(long, conflicts_with_all = ["plan_first", "force"])]
    pub(crate) etag: Option<String>,
    /// Show the plan, ask, and submit exactly that
    #[arg(long, conflicts_with_all = ["force", "dry_run"])]
    pub(crate) plan_first: bool,
    /// Submit whatever was changed meanwhile: what happens without --etag, spelt out
    #[arg(long)]
    pub(crate) force: bool,
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
    #[arg(add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Also tasks that ended, below their successors
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only on this node
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::nodes))]
    pub(crate) node: Option<String>,
    /// What to show of them.
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// `stop`
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Jobs, as NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "JOB", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) jobs: Vec<String>,
    /// Forget the jobs and their history once their tasks are gone; asks first
    #[arg(long)]
    pub(crate) purge: bool,
    /// Stop only if the stored job still has this etag
    #[arg(long)]
    pub(crate) etag: Option<String>,
    /// Only check: nothing is written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until the tasks are gone
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// `scale`
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Services and their new number of replicas
    #[arg(required = true, value_name = "JOB=REPLICAS", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) targets: Vec<String>,
    /// Scale only if the stored job still has this etag
    #[arg(long)]
    pub(crate) etag: Option<String>,
    /// Only check: nothing is written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait for the tasks
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// `job wait`
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Jobs, as NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "JOB", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) jobs: Vec<String>,
    /// Wait until there are no such jobs any more
    #[arg(long)]
    pub(crate) gone: bool,
}

impl From<RmArgs> for StopArgs {
    fn from(args: RmArgs) -> Self {
        Self { jobs: args.jobs, purge: true, etag: args.etag, dry_run: args.dry_run, detach: args.detach }
    }
}

/// `job rm`
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Jobs, as NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "JOB", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) jobs: Vec<String>,
    /// Remove only if the stored job still has this etag
    #[arg(long)]
    pub(crate) etag: Option<String>,
    /// Only check: nothing is written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until they are gone
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// `plan`
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Job files, folders of them, or - for standard input
    #[arg(required_unless_present = "more", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// The same as FILE
    #[arg(short = 'f', long = "file", value_name = "FILE", id = "more")]
    pub(crate) more: Vec<String>,
    /// Format of the files, where their names do not tell it
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// End with 10 where something would change, and with 11 where not all of it finds a place
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// Kinds of objects that events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Jobs
    Job,
    /// Tasks
    Task,
    /// Nodes
    Node,
    /// Managers
    Manager,
}

/// `events`
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Go on with what happens, until Ctrl-C; without it, end where the present is reached
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only of these kinds
    #[arg(long = "kind", value_name = "KIND,…", value_enum, value_delimiter = ',')]
    pub(crate) kinds: Vec<Kind>,
    /// Begin after this revision; without it, with everything there is
    #[arg(long, value_name = "REVISION")]
    pub(crate) since: Option<u64>,
    /// Only of this job and its tasks, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Only of this node and the tasks on it
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::nodes))]
    pub(crate) node: Option<String>,
    /// Only objects whose labels match, like app=web,tier!=db
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
}

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// List contexts; * marks the one in use
    #[command(alias = "list")]
    Ls,
    /// Talk to this cluster from now on
    Use {
        /// Context
        #[arg(add = ArgValueCandidates::new(complete::contexts))]
        name: String,
    },
    /// Save what --manager, --namespace and --security say (flags or environment) as a context; what is not given stays
    /// as it is
    Set {
        /// Context
        name: String,
    },
    /// Forget a context
    #[command(alias = "delete")]
    Rm {
        /// Context
        #[arg(add = ArgValueCandidates::new(complete::contexts))]
        name: String,
    },
    /// Show a context, or the one in use
    #[command(alias = "get", alias = "inspect")]
    Show {
        /// Context
        #[arg(add = ArgValueCandidates::new(complete::contexts))]
        name: Option<String>,
    },
}
