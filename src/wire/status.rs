//! Errors of the API: the catalogue of reasons, and how each travels as a gRPC status.
//!
//! Servers build an [`ApiError`] and turn it into a [`Status`] with the details of google.rpc (`ErrorInfo`,
//! `BadRequest`, `RetryInfo`); clients turn the status back with [`ApiError::from_status`]. What follows from a
//! reason (code, retries, exit code, hints) stands in one table below.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use quorate_model::{Invalid, InvalidList, Name, Revision, task::cut};
use quorate_state::Rejection;
use tonic::{Code, Status, metadata::MetadataValue};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of our reasons in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "quorate.dev";
/// Most bytes of a message.
const MAX_MESSAGE: usize = 1024;
/// Most bytes of all violations together: a status must fit into HTTP headers, of which peers take 16 KiB.
const MAX_VIOLATIONS: usize = 4096;
/// Most bytes of one metadata value.
const MAX_VALUE: usize = 256;
/// The gRPC header by which a server asks for a wait (gRPC proposal A6), in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Who may try again, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Nobody: the same request fails again.
    Never,
    /// The client, by itself, with the same request id.
    ClientSameRequestId,
    /// The caller, after reading what is there now.
    CallerReReads,
    /// The client, after the wait that the server gave.
    HonourRetryInfo,
}

/// What follows from a reason.
struct Rule {
    word: &'static str,
    code: Code,
    retry: Retry,
    exit: u8,
    hints: &'static [&'static str],
}

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident $word:literal $code:ident $retry:ident $exit:literal $hints:expr;)+) => {
        /// Why a call failed: stable words, part of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            const fn rule(self) -> Rule {
                match self {
                    $(Self::$name => Rule {
                        word: $word,
                        code: Code::$code,
                        retry: Retry::$retry,
                        exit: $exit,
                        hints: &$hints,
                    },)+
                }
            }
        }
    };
}

// Reason, word, code, who retries, exit code of the command line, hints ({key} = from the metadata).
catalogue! {
    /// No manager leads at the moment; nothing was written.
    NoLeader "NO_LEADER" Unavailable ClientSameRequestId 9
        ["an election takes a second or two: try again", "quorate cluster status    see who can be reached"];
    /// The asked manager does not lead; nothing was written. Metadata: leader, leader_address.
    NotLeader "NOT_LEADER" Unavailable ClientSameRequestId 9 ["try {leader_address} (manager {leader})"];
    /// The manager is stopping; nothing was written.
    ShuttingDown "SHUTTING_DOWN" Unavailable ClientSameRequestId 9 ["try another manager"];
    /// No manager answers; the client's own finding.
    Unreachable "UNREACHABLE" Unavailable ClientSameRequestId 9
        ["check the addresses given with --manager (QUORATE_MANAGERS)", "quorate cluster status    see who can be reached"];
    /// The manager cannot reach the freshness that the read asks for; another one may.
    StaleRead "STALE_READ" Unavailable ClientSameRequestId 9
        ["another manager may be fresher: try again", "quorate cluster status    see which manager lags"];
    /// The job is there already. Metadata: job, stored, changed_by, changed_at.
    JobExists "JOB_EXISTS" AlreadyExists Never 7
        ["quorate job inspect {job}    see what is stored now", "submit without --etag 0 to replace it"];
    /// The job moved since the caller read it. Metadata: job, stored, sent, changed_by, changed_at.
    EtagMismatch "ETAG_MISMATCH" Aborted CallerReReads 7
        ["quorate job inspect {job}    see what is stored now", "then submit again, without --etag to replace it anyway"];
    /// The state moved on since the request was made.
    StateMoved "STATE_MOVED" Aborted CallerReReads 7 ["look at the present state, then try again"];
    /// The job breaks rules; each violation has its path.
    JobInvalid "JOB_INVALID" InvalidArgument Never 5 ["mend the fields above and submit again"];
    /// A field that this manager does not know.
    UnknownField "UNKNOWN_FIELD" InvalidArgument Never 5 ["check the spelling, or upgrade the managers"];
    /// The request id was used for another request.
    RequestIdReused "REQUEST_ID_REUSED" InvalidArgument Never 5 ["draw a fresh request id for every intended write"];
    /// The specification is larger than a mebibyte.
    SpecTooLarge "SPEC_TOO_LARGE" InvalidArgument Never 5 ["move large values out of env and args, into a volume"];
    /// A page token that this list did not give.
    PageTokenInvalid "PAGE_TOKEN_INVALID" InvalidArgument Never 5
        ["list from the start; keep filters the same between pages"];
    /// The list that the page token belongs to is not kept any more.
    PageTokenExpired "PAGE_TOKEN_EXPIRED" Aborted CallerReReads 7
        ["list from the start; ask for the next page sooner, or for larger pages"];
    /// The changes since that revision are not kept any more. Metadata: oldest.
    RevisionCompacted "REVISION_COMPACTED" OutOfRange CallerReReads 1
        ["start over without a revision: the snapshot comes first", "the oldest revision to resume from is {oldest}"];
    /// The revision lies in the future. Metadata: revision, applied.
    RevisionInFuture "REVISION_IN_FUTURE" OutOfRange Never 1
        ["check that the revision comes from this cluster; it is at {applied}"];
    /// The watcher read too slowly. Metadata: revision.
    WatchTooSlow "WATCH_TOO_SLOW" ResourceExhausted CallerReReads 1
        ["resume after revision {revision}, and read faster or filter more"];
    /// Too many watches are open on this manager.
    TooManyWatches "TOO_MANY_WATCHES" ResourceExhausted HonourRetryInfo 1
        ["try another manager, or share one watch between readers"];
    /// The reader of a log or of a command's output was too slow.
    ReaderTooSlow "READER_TOO_SLOW" ResourceExhausted CallerReReads 1 ["read faster, or ask for less"];
    /// The task has nothing that could be asked: it is not on a node yet, or it ended. Metadata: task.
    TaskNotRunning "TASK_NOT_RUNNING" FailedPrecondition CallerReReads 1
        ["quorate task inspect {task}    see its state and history"];
    /// The task wrote no log, or its container is gone. Metadata: task.
    LogNotFound "LOG_NOT_FOUND" NotFound CallerReReads 6
        ["quorate task inspect {task}    see its state and history"];
    /// The agent of the task's node has no session with the leader. Metadata: node.
    AgentUnreachable "AGENT_UNREACHABLE" FailedPrecondition CallerReReads 9
        ["quorate node inspect {node}    see since when it is not heard"];
    /// The command could not be started in the container. Metadata: task.
    ExecFailed "EXEC_FAILED" FailedPrecondition Never 1 ["check the program's path inside the container"];
    /// Another argument breaks a rule.
    ArgumentInvalid "ARGUMENT_INVALID" InvalidArgument Never 5 ["mend the arguments and try again"];
    /// No such job. Metadata: job.
    JobNotFound "JOB_NOT_FOUND" NotFound Never 6 ["quorate job ls    see all jobs"];
    /// No such task. Metadata: task.
    TaskNotFound "TASK_NOT_FOUND" NotFound Never 6 ["quorate ps --all    see all tasks, also ended ones"];
    /// No such node. Metadata: node.
    NodeNotFound "NODE_NOT_FOUND" NotFound Never 6 ["quorate node ls    see all nodes"];
    /// The name belongs to a job of another type. Metadata: job.
    JobTypeChanged "JOB_TYPE_CHANGED" FailedPrecondition Never 7
        ["give the new job another name", "quorate stop --purge {job}    forget the old one first"];
    /// The job is being purged. Metadata: job.
    JobPurging "JOB_PURGING" FailedPrecondition CallerReReads 7 ["quorate ps {job} -a    see which tasks are not gone yet"];
    /// Only services have replicas. Metadata: job.
    NotScalable "NOT_SCALABLE" FailedPrecondition Never 5 ["set parallelism in the job file and submit it again"];
    /// A live agent has the node's name. Metadata: node.
    NodeNameTaken "NODE_NAME_TAKEN" AlreadyExists Never 7
        ["give this agent a name of its own", "quorate node inspect {node}    see who has it"];
    /// The peer belongs to another cluster. Metadata: cluster.
    WrongCluster "WRONG_CLUSTER" FailedPrecondition Never 1
        ["check the configured addresses of the managers", "an agent that moves for good needs an empty data directory"];
    /// The cluster has its identity already.
    AlreadyInitialised "ALREADY_INITIALISED" FailedPrecondition Never 7 ["quorate cluster status    see which cluster this is"];
    /// The caller may not do this.
    PermissionDenied "PERMISSION_DENIED" PermissionDenied Never 8 ["check the role of the certificate"];
    /// Too much is waiting; nothing was written.
    Overloaded "OVERLOADED" ResourceExhausted HonourRetryInfo 9 ["wait a moment and try again"];
    /// The outcome is unknown: the write may yet be committed. Metadata: request_id.
    CommitTimeout "COMMIT_TIMEOUT" DeadlineExceeded ClientSameRequestId 9
        ["the write may still happen: repeat it with --request-id {request_id}, or look first",
            "quorate cluster status    see whether the cluster has a quorum"];
    /// A read did not get its answer in time.
    ReadTimeout "READ_TIMEOUT" DeadlineExceeded ClientSameRequestId 9
        ["--consistency stale reads without a quorum", "quorate cluster status    see whether the cluster has a quorum"];
    /// The manager does not offer this call.
    Unsupported "UNSUPPORTED" Unimplemented Never 1 ["the manager may be older than this program: upgrade it"];
    /// A defect of ours.
    Internal "INTERNAL" Internal Never 1 ["please report this, with the log of the manager that answered"];
}

impl Reason {
    /// The word in `ErrorInfo.reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.rule().word
    }

    /// The reason with that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// Its gRPC code.
    #[must_use]
    pub const fn code(self) -> Code {
        self.rule().code
    }

    /// Who may try again.
    #[must_use]
    pub const fn retry(self) -> Retry {
        self.rule().retry
    }

    /// Exit code of the command line.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        self.rule().exit
    }

    /// What a status without our details means: from a proxy, from tonic itself, or from a newer manager.
    fn of_code(code: Code) -> Self {
        match code {
            Code::Unavailable => Self::Unreachable,
            Code::DeadlineExceeded | Code::Cancelled => Self::CommitTimeout,
            Code::InvalidArgument | Code::OutOfRange => Self::ArgumentInvalid,
            Code::ResourceExhausted => Self::Overloaded,
            Code::Aborted | Code::FailedPrecondition | Code::NotFound | Code::AlreadyExists => {
                Self::StateMoved
            }
            Code::PermissionDenied | Code::Unauthenticated => Self::PermissionDenied,
            Code::Unimplemented => Self::Unsupported,
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => Self::Internal,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A failed call: the same on both sides of the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Why.
    pub reason: Reason,
    /// For people: what, where, why; one sentence.
    pub message: String,
    /// For programs and hints: names, revisions, addresses.
    pub metadata: BTreeMap<String, String>,
    /// Fields that break rules.
    pub violations: InvalidList,
    /// Wait before the next try.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    /// An error without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            metadata: BTreeMap::new(),
            violations: InvalidList::default(),
            retry_after: None,
        }
    }

    /// The same with a detail for programs and hints.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// The same with a wait before the next try.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// A refusal with all the fields that break rules.
    #[must_use]
    pub fn invalid(reason: Reason, what: &str, violations: InvalidList) -> Self {
        let message = match violations.0.as_slice() {
            [] => format!("{what} is not valid"),
            [one] => format!("{what} is not valid: {one}"),
            [first, rest @ ..] => format!("{what} is not valid: {first} (and {} more)", rest.len()),
        };
        Self { violations, ..Self::new(reason, message) }
    }

    /// At most two lines that say what to do.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        self.reason.rule().hints.iter().filter_map(|hint| fill(hint, &self.metadata)).collect()
    }

    /// Whether a manager of ours made the status, and not a proxy or the transport.
    #[must_use]
    pub fn is_ours(status: &Status) -> bool {
        status.get_error_details().error_info().is_some_and(|info| info.domain == DOMAIN)
    }

    /// Reads a status; one without our details gets the reason that its code suggests.
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        let known = info.and_then(|info| Reason::from_word(&info.reason));
        let reason = known.unwrap_or_else(|| Reason::of_code(status.code()));
        let mut metadata: BTreeMap<String, String> =
            info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default();
        if let (None, Some(info)) = (known, info) {
            metadata.insert("reason".to_owned(), info.reason.clone());
        }
        let violations = details.bad_request().map(|bad| {
            bad.field_violations
                .iter()
                .map(|v| Invalid::new(v.field.as_str(), v.description.as_str()))
                .collect()
        });
        Self {
            reason,
            message: status.message().to_owned(),
            metadata,
            violations: InvalidList(violations.unwrap_or_default()),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

/// The hint with its `{key}`s filled in; `None` when the error does not know one of them.
fn fill(hint: &str, metadata: &BTreeMap<String, String>) -> Option<String> {
    let (mut out, mut rest) = (String::new(), hint);
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after.split_once('}')?;
        out.push_str(before);
        out.push_str(metadata.get(key)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let metadata: HashMap<String, String> =
            error.metadata.iter().map(|(k, v)| (k.clone(), cut(v, MAX_VALUE).to_owned())).collect();
        let mut details = ErrorDetails::with_error_info(error.reason.as_str(), DOMAIN, metadata);
        for one in bounded(&error.violations) {
            details.add_bad_request_violation(one.path, one.reason);
        }
        if error.retry_after.is_some() {
            details.set_retry_info(error.retry_after);
        }
        let message = cut(&error.message, MAX_MESSAGE);
        let mut status = Self::with_error_details(error.reason.code(), message, details);
        if let Some(wait) = error.retry_after {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            status.metadata_mut().insert(PUSHBACK, MetadataValue::from(millis));
        }
        status
    }
}

/// As many violations as fit into a status; a last one says how many do not.
fn bounded(list: &InvalidList) -> Vec<Invalid> {
    let (mut out, mut bytes) = (Vec::new(), 0);
    for (i, one) in list.0.iter().enumerate() {
        let one = Invalid::new(cut(&one.path, MAX_VALUE), cut(&one.reason, MAX_VALUE));
        bytes += one.path.len() + one.reason.len();
        if bytes > MAX_VIOLATIONS {
            out.push(Invalid::new("", format!("and {} more", list.0.len() - i)));
            break;
        }
        out.push(one);
    }
    out
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let message = rejection.to_string();
        let job = |reason, namespace: &Name, name: &Name| {
            Self::new(reason, message.clone()).with("job", format_args!("{namespace}/{name}"))
        };
        match rejection {
            Rejection::JobNotFound { namespace, name } => job(Reason::JobNotFound, &namespace, &name),
            Rejection::JobTypeChanged { namespace, name, stored, sent } => {
                job(Reason::JobTypeChanged, &namespace, &name).with("stored", stored).with("sent", sent)
            }
            Rejection::EtagMismatch { namespace, name, stored, sent, by, at } => {
                let reason = if sent == Revision(0) { Reason::JobExists } else { Reason::EtagMismatch };
                let error = job(reason, &namespace, &name).with("stored", stored).with("sent", sent);
                if stored == Revision(0) {
                    return error;
                }
                error.with("changed_by", by).with("changed_at", at)
            }
            Rejection::JobPurging { namespace, name } => job(Reason::JobPurging, &namespace, &name),
            Rejection::NotScalable { namespace, name } => job(Reason::NotScalable, &namespace, &name),
            Rejection::JobInvalid(list) => Self::invalid(Reason::JobInvalid, "the job", list),
            Rejection::Invalid(list) => Self::invalid(Reason::ArgumentInvalid, "the request", list),
            Rejection::NodeNameTaken { name } => Self::new(Reason::NodeNameTaken, message).with("node", name),
            Rejection::RequestReused { id } => {
                Self::new(Reason::RequestIdReused, message).with("request_id", id)
            }
            Rejection::Gone { .. } | Rejection::WrongJobStatus { .. } | Rejection::StaleFence { .. } => {
                Self::new(Reason::StateMoved, message)
            }
            Rejection::AlreadyInitialised => Self::new(Reason::AlreadyInitialised, message),
        }
    }
}

#[cfg(test)]
mod tests;
