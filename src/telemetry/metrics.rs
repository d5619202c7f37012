//! Every metric: its name, kind, unit, labels and help, and the one function that sets it.
//!
//! Call sites use the functions and never spell a name. Names follow Prometheus (`quorate_` prefix, base units,
//! `_total`). Label values come from small fixed sets: never an id of a task, job or request. Gauges of replicated state
//! ([`OF_THE_LEADER`]) are shown by the leader alone.
//!
//! Before a recorder is installed each call does nothing.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution over [`crate::recorder::BUCKETS`].
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// As exported.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What one unit of its value is.
    pub unit: Unit,
    /// The names of its labels, in the order in which its function takes their values.
    pub labels: &'static [&'static str],
    /// One sentence for people.
    pub help: &'static str,
}

const METADATA: Metadata<'static> = Metadata::new("quorate", Level::INFO, None);

impl Metric {
    fn key(&self, values: &[&str]) -> Key {
        let labels =
            self.labels.iter().zip(values).map(|(name, value)| Label::new(*name, (*value).to_owned()));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }

    fn counter(&self, values: &[&str]) -> Counter {
        with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    fn gauge(&self, values: &[&str]) -> Gauge {
        with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    fn histogram(&self, values: &[&str]) -> Histogram {
        with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }

    fn describe(&self) {
        let (name, unit, help) = (self.name.into(), Some(self.unit), self.help.into());
        with_recorder(|recorder| match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}

/// Tells the recorder the kind, unit and help of every metric.
pub fn describe_all() {
    ALL.iter().for_each(Metric::describe);
}

/// The name of a label as exported: a Rust keyword (`r#type`) loses its mark.
const fn label_name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

macro_rules! kind {
    (counter) => {
        Kind::Counter
    };
    (gauge) => {
        Kind::Gauge
    };
    (histogram) => {
        Kind::Histogram
    };
}

macro_rules! record {
    (counter, $metric:expr, $labels:expr, $value:expr) => {
        $metric.counter($labels).increment($value)
    };
    (gauge, $metric:expr, $labels:expr, $value:expr) => {
        $metric.gauge($labels).set($value.number())
    };
    (histogram, $metric:expr, $labels:expr, $value:expr) => {
        $metric.histogram($labels).record($value.number())
    };
}

/// Defines a metric's constant and its function from one entry, and collects all of them in [`ALL`].
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $constant:ident = $name:literal $kind:ident in $unit:ident:
        $function:ident($($label:ident,)* ; $value:ident: $type:ty);)+) => {
        $(
            #[doc = concat!("`", $name, "`:", $($help,)+)]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: kind!($kind),
                unit: Unit::$unit,
                labels: &[$(label_name(stringify!($label))),*],
                help: concat!($($help),+).trim_ascii(),
            };

            #[doc = concat!("Records `", $name, "`:", $($help,)+)]
            pub fn $function($($label: &str,)* $value: $type) {
                record!($kind, $constant, &[$($label),*], $value);
            }
        )+

        /// Every metric.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    /// 1 while this manager knows a leader, else 0.
    RAFT_HAS_LEADER = "quorate_raft_has_leader" gauge in Count: raft_has_leader(; has: bool);
    /// 1 while this manager is the leader, else 0.
    RAFT_IS_LEADER = "quorate_raft_is_leader" gauge in Count: raft_is_leader(; is: bool);
    /// Raft's current term.
    RAFT_TERM = "quorate_raft_term" gauge in Count: raft_term(; term: u64);
    /// Changes of the leader that this manager saw.
    RAFT_LEADER_CHANGES = "quorate_raft_leader_changes_total" counter in Count: raft_leader_changes(; count: u64);
    /// Commands that this manager proposed and that were committed.
    RAFT_PROPOSALS_COMMITTED = "quorate_raft_proposals_committed_total" counter in Count:
        raft_proposals_committed(; count: u64);
    /// Log entries that this manager applied to its state.
    RAFT_PROPOSALS_APPLIED = "quorate_raft_proposals_applied_total" counter in Count:
        raft_proposals_applied(; count: u64);
    /// Commands that this manager proposed and that failed, by reason.
    RAFT_PROPOSALS_FAILED = "quorate_raft_proposals_failed_total" counter in Count:
        raft_proposals_failed(reason,; count: u64);
    /// Commands that wait to be proposed or committed.
    RAFT_PROPOSALS_PENDING = "quorate_raft_proposals_pending" gauge in Count: raft_proposals_pending(; count: usize);
    /// From proposing an entry to its answer.
    RAFT_COMMIT_DURATION = "quorate_raft_commit_duration_seconds" histogram in Seconds:
        raft_commit_duration(; took: Duration);
    /// One confirmation of leadership for linearizable reads.
    RAFT_READ_INDEX_DURATION = "quorate_raft_read_index_duration_seconds" histogram in Seconds:
        raft_read_index_duration(; took: Duration);
    /// Since this manager last heard from the leader.
    RAFT_LAST_CONTACT = "quorate_raft_last_contact_seconds" gauge in Seconds: raft_last_contact(; ago: Duration);
    /// Log entries that a peer lacks, by the peer's name; set by the leader.
    RAFT_REPLICATION_LAG = "quorate_raft_replication_lag_entries" gauge in Count:
        raft_replication_lag(peer,; entries: u64);
    /// One flush of a store to the disk, by store.
    STORE_FSYNC_DURATION = "quorate_store_fsync_duration_seconds" histogram in Seconds:
        store_fsync_duration(db,; took: Duration);
    /// Bytes on disk, by what they hold (log, state, snapshot).
    STORE_SIZE = "quorate_store_size_bytes" gauge in Bytes: store_size(kind,; bytes: u64);
    /// Reads answered, by consistency asked for and result.
    READS = "quorate_reads_total" counter in Count: reads(consistency, result,; count: u64);
    /// One pass of the scheduler over the pending tasks.
    SCHEDULER_PASS_DURATION = "quorate_scheduler_pass_duration_seconds" histogram in Seconds:
        scheduler_pass_duration(; took: Duration);
    /// Tasks that wait for a node, by the reason that keeps most nodes out.
    SCHEDULER_PENDING_TASKS = "quorate_scheduler_pending_tasks" gauge in Count:
        scheduler_pending_tasks(reason,; count: usize);
    /// Placement decisions, by result.
    SCHEDULER_DECISIONS = "quorate_scheduler_decisions_total" counter in Count:
        scheduler_decisions(result,; count: u64);
    /// On the leader: from a task's creation until it runs.
    SCHEDULER_SUBMIT_TO_RUNNING = "quorate_scheduler_submit_to_running_seconds" histogram in Seconds:
        scheduler_submit_to_running(; took: Duration);
    /// Jobs, by type and status.
    JOBS = "quorate_jobs" gauge in Count: jobs(r#type, status,; count: usize);
    /// Tasks, by observed state.
    TASKS = "quorate_tasks" gauge in Count: tasks(state,; count: usize);
    /// Nodes, by status.
    NODES = "quorate_nodes" gauge in Count: nodes(status,; count: usize);
    /// Agents with a live session on this manager.
    AGENT_SESSIONS = "quorate_agent_sessions" gauge in Count: agent_sessions(; count: usize);
    /// Assignment messages sent to agents, by form (complete, incremental).
    AGENT_ASSIGNMENTS_SENT = "quorate_agent_assignments_sent_total" counter in Count:
        agent_assignments_sent(form,; count: u64);
    /// Batches of task statuses written to the log.
    AGENT_STATUS_BATCHES = "quorate_agent_status_batches_total" counter in Count:
        agent_status_batches(; count: u64);
    /// Watches that are open.
    API_WATCH_STREAMS = "quorate_api_watch_streams" gauge in Count: api_watch_streams(; count: usize);
    /// Watches that the manager ended, by reason (slow, compacted, stopping).
    API_WATCHES_CUT = "quorate_api_watches_cut_total" counter in Count: api_watches_cut(reason,; count: u64);
    /// Complete sets sent within a session, by reason (mismatch: the agent holds another set; periodic).
    AGENT_RESYNCS = "quorate_agent_resyncs_total" counter in Count: agent_resyncs(reason,; count: u64);
    /// Statuses of agents that had no effect, by reason (unreadable, unknown, foreign, ended, backwards, old, fence,
    /// superseded, too-many).
    AGENT_STATUSES_REFUSED = "quorate_agent_statuses_refused_total" counter in Count:
        agent_statuses_refused(reason,; count: u64);
    /// One call served, by method (service/method, known ones only) and gRPC code.
    RPC_SERVER_CALL_DURATION = "quorate_rpc_server_call_duration_seconds" histogram in Seconds:
        rpc_server_call_duration(rpc_method, rpc_response_status_code,; took: Duration);
    /// Writes that this follower passed on to the leader, by result.
    API_FORWARDED = "quorate_api_forwarded_total" counter in Count: api_forwarded(result,; count: u64);
    /// Writes answered from the record of an earlier call with the same request id.
    API_IDEMPOTENT_REPLAYS = "quorate_api_idempotent_replays_total" counter in Count:
        api_idempotent_replays(; count: u64);
    /// On an agent: from an assignment to a phase of the task's start.
    AGENT_TASK_START_DURATION = "quorate_agent_task_start_duration_seconds" histogram in Seconds:
        agent_task_start_duration(phase,; took: Duration);
    /// On an agent: failed operations of a container runtime, by driver and operation.
    AGENT_DRIVER_ERRORS = "quorate_agent_driver_errors_total" counter in Count:
        agent_driver_errors(driver, op,; count: u64);
    /// On an agent: sessions that ended and were dialled again, by reason.
    AGENT_RECONNECTS = "quorate_agent_reconnects_total" counter in Count: agent_reconnects(reason,; count: u64);
    /// On an agent: containers of this node that no task has.
    AGENT_ORPHANS = "quorate_agent_orphans" gauge in Count: agent_orphans(; count: usize);
    /// 1 while it runs; its labels say what runs.
    BUILD_INFO = "quorate_build_info" gauge in Count: build_info(version, commit,; runs: bool);
}

/// Gauges of what all managers have alike: shown by the leader alone.
pub const OF_THE_LEADER: &[Metric] = &[SCHEDULER_PENDING_TASKS, JOBS, TASKS, NODES, RAFT_REPLICATION_LAG];

/// A value as the recorder takes it: a count, seconds, or 1 for true.
trait Number {
    fn number(self) -> f64;
}

impl Number for u64 {
    /// Exact up to 2^53, as far as Prometheus can tell numbers apart.
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for usize {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

impl Number for Duration {
    fn number(self) -> f64 {
        self.as_secs_f64()
    }
}
