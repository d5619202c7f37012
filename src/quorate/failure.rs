//! Why a command failed: one shape for all, as text and as JSON, with the exit code.

use std::io;

use quorate_client::ClientError;
use quorate_wire::status::{ApiError, Reason};
use serde_json::{Value, json};

use crate::document::{Problem, Problems};
use crate::render::Style;

/// Column at which the code of an error begins, where the message leaves room.
const CODE_COLUMN: usize = 60;

/// A failed command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    /// Exit code of the process.
    pub(crate) exit: u8,
    /// The reader of our output is gone.
    pub(crate) broken_pipe: bool,
    /// There is nothing to say besides the exit code.
    pub(crate) quiet: bool,
    told: Box<Told>,
}

/// What is said about it.
#[derive(Clone, Debug, Default)]
struct Told {
    /// One sentence: what, where, why.
    message: String,
    /// gRPC code and reason.
    code: Option<(String, String)>,
    /// More about it, a line each.
    details: Vec<String>,
    /// What to do, at most two.
    hints: Vec<String>,
    request_id: Option<String>,
    answered_by: Option<String>,
    /// Mistakes in files.
    problems: Vec<Problem>,
}

impl Failure {
    /// A failure of the command itself.
    pub(crate) fn new(exit: u8, message: impl Into<String>) -> Self {
        let told = Told { message: message.into(), ..Told::default() };
        Self { exit, told: Box::new(told), ..Self::default() }
    }

    /// An exit code that says it all.
    pub(crate) fn silent(exit: u8) -> Self {
        Self { quiet: true, ..Self::new(exit, "") }
    }

    /// The same with more about it.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.told.details.push(line.into());
        self
    }

    /// The same with what to do.
    pub(crate) fn hint(mut self, line: impl Into<String>) -> Self {
        self.told.hints.push(line.into());
        self
    }

    /// The same with places in a file, which take the place of the details.
    pub(crate) fn with_problems(mut self, problems: Vec<Problem>) -> Self {
        if !problems.is_empty() {
            self.told.details.clear();
            self.told.problems = problems;
        }
        self
    }

    /// Several failures as one: each with its details, the hints of the first, the exit code of the gravest (a failed job
    /// before tasks that find no place, before what may yet come).
    pub(crate) fn of_all(failures: Vec<Self>) -> Option<Self> {
        const GRAVEST: [u8; 3] = [4, 3, 9];
        let rank =
            |failure: &Self| GRAVEST.iter().position(|exit| *exit == failure.exit).unwrap_or(GRAVEST.len());
        let exit = failures.iter().min_by_key(|failure| rank(failure))?.exit;
        let mut all = failures.into_iter();
        let mut first = all.next()?;
        for other in all {
            first.told.details.push(other.told.message);
            first.told.details.extend(other.told.details.into_iter().map(|line| format!("  {line}")));
        }
        first.exit = exit;
        Some(first)
    }

    /// Standard output cannot be written to.
    pub(crate) fn output(error: &io::Error) -> Self {
        let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { broken_pipe, ..Self::new(1, format!("cannot write to standard output: {error}")) }
    }

    /// The same without the hints that say `words`: what was done already.
    pub(crate) fn without_hint(mut self, words: &str) -> Self {
        self.told.hints.retain(|hint| !hint.contains(words));
        self
    }

    fn of_api(error: &ApiError) -> Self {
        let metadata = |key: &str| error.metadata.get(key).map(String::as_str);
        let answered_by = metadata("manager").map(|manager| match (metadata("leader"), metadata("term")) {
            (Some(leader), Some(term)) => format!("{manager} (leader {leader}, term {term})"),
            _ => manager.to_owned(),
        });
        let told = Told {
            message: without_violations(error),
            code: Some((screaming(error.reason.code()), error.reason.to_string())),
            details: error.violations.0.iter().map(ToString::to_string).collect(),
            hints: error.hints(),
            answered_by,
            ..Told::default()
        };
        Self { exit: error.reason.exit_code(), told: Box::new(told), ..Self::default() }
    }

    /// For people, on standard error.
    pub(crate) fn to_text(&self, style: Style) -> String {
        if !self.told.problems.is_empty() && self.told.message.is_empty() {
            let parts: Vec<String> = self
                .told
                .problems
                .iter()
                .map(|problem| format!("{} {problem}", style.error("error:")))
                .collect();
            return parts.join("\n");
        }
        let mut out = format!("{} {}", style.error("error:"), self.told.message);
        if let Some((code, reason)) = &self.told.code {
            let gap = CODE_COLUMN.saturating_sub(self.told.message.chars().count() + 7).max(2);
            out.push_str(&format!("{}[{code} · {reason}]", " ".repeat(gap)));
        }
        for problem in &self.told.problems {
            out.push_str(&format!("\n{problem}"));
        }
        for detail in &self.told.details {
            out.push_str(&format!("\n  {}", detail.replace('\n', "\n  ")));
        }
        for (i, hint) in self.told.hints.iter().take(2).enumerate() {
            let lead = if i == 0 { "hint:" } else { "     " };
            out.push_str(&format!("\n  {} {hint}", style.dim(lead)));
        }
        let request = self.told.request_id.as_ref().map(|id| format!("request {id}"));
        let answered = self.told.answered_by.as_ref().map(|who| format!("answered by {who}"));
        let last: Vec<String> = [request, answered].into_iter().flatten().collect();
        if !last.is_empty() {
            out.push_str(&format!("\n  {}", style.dim(&last.join(" · "))));
        }
        out
    }

    /// For programs, on standard error.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = serde_json::Map::new();
        let mut put = |key: &str, value: Value| {
            if !(value.is_null() || value == json!([]) || value == json!("")) {
                error.insert(key.to_owned(), value);
            }
        };
        put("code", json!(self.told.code.as_ref().map(|(code, _)| code)));
        put("reason", json!(self.told.code.as_ref().map(|(_, reason)| reason)));
        put("message", json!(self.told.message));
        put("details", json!(self.told.details));
        put("problems", json!(self.told.problems));
        put("hints", json!(self.told.hints));
        put("requestId", json!(self.told.request_id));
        put("answeredBy", json!(self.told.answered_by));
        put("exitCode", json!(self.exit));
        json!({ "error": error })
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::new(5, "").with_problems(problems.0)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let request_id = error.request_id().map(str::to_owned);
        let tries: Vec<String> = error.tries().iter().map(ToString::to_string).collect();
        let mut failure = match &error {
            ClientError::Api { error, endpoint, .. } => {
                let mut failure = Self::of_api(error);
                failure.told.answered_by.get_or_insert_with(|| endpoint.clone());
                failure
            }
            ClientError::Foreign { code, .. } => {
                let mut failure = Self::new(1, error.to_string());
                failure.told.code = Some((screaming(*code), "FOREIGN".to_owned()));
                failure
            }
            ClientError::Unreachable { .. } => {
                let finding = ApiError::new(Reason::Unreachable, error.to_string());
                let mut failure = Self::of_api(&finding);
                failure.told.details = tries;
                failure
            }
            ClientError::Deadline { last, outcome_unknown, .. } => {
                deadline(&error.to_string(), last.as_deref(), *outcome_unknown, request_id.as_deref(), tries)
            }
            ClientError::Address(_) | ClientError::NoManagers | ClientError::RequestId(_) => {
                Self::new(5, error.to_string())
            }
        };
        failure.told.request_id = request_id;
        failure
    }
}

/// The message of a refusal without the violation that it repeats: all of them stand below it.
fn without_violations(error: &ApiError) -> String {
    let first = error.violations.0.first().map(|first| format!(": {first}"));
    match first.and_then(|first| error.message.find(&first)) {
        Some(at) => error.message[..at].to_owned(),
        None => error.message.clone(),
    }
}

/// The time was up: what the managers said last tells most.
fn deadline(
    message: &str,
    last: Option<&ApiError>,
    outcome_unknown: bool,
    request_id: Option<&str>,
    tries: Vec<String>,
) -> Failure {
    let refused = !tries.is_empty() && tries.iter().all(|one| one.contains(": cannot connect: "));
    let reason = match (outcome_unknown, request_id) {
        (true, _) => Reason::CommitTimeout,
        (false, None) if refused && last.is_none() => Reason::Unreachable,
        (false, Some(_)) => Reason::Unreachable,
        (false, None) => Reason::ReadTimeout,
    };
    let finding = match last {
        Some(last) if !outcome_unknown => ApiError { message: format!("{message}: {last}"), ..last.clone() },
        _ => ApiError::new(reason, message),
    };
    let finding = match request_id {
        Some(id) => finding.with("request_id", id),
        None => finding,
    };
    let mut failure = Failure::of_api(&finding);
    // Out of time is worth a retry, whatever was said on the way.
    failure.exit = 9;
    if outcome_unknown {
        failure.told.details.push("it is not known whether the write happened".to_owned());
    }
    failure.told.details.extend(tries);
    failure
}

/// `FAILED_PRECONDITION`, as gRPC spells its codes.
fn screaming(code: tonic::Code) -> String {
    let mut out = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_client::Try;
    use std::time::Duration;

    fn text(error: ClientError) -> (u8, String) {
        let failure = Failure::from(error);
        (failure.exit, failure.to_text(Style::plain()))
    }

    #[test]
    fn a_refusal_says_code_hints_request_and_who_answered() {
        let error = ApiError::new(Reason::EtagMismatch, "job shop/web moved")
            .with("job", "shop/web")
            .with("manager", "m2")
            .with("leader", "m1")
            .with("term", 7);
        let hints = error.hints();
        let (exit, shown) = text(ClientError::Api {
            error: Box::new(error),
            endpoint: "127.0.0.1:7420".into(),
            request_id: Some("01JDZ".into()),
        });
        assert_eq!(exit, 7);
        assert_eq!(
            shown,
            format!(
                "error: job shop/web moved                                   [ABORTED · ETAG_MISMATCH]\n  hint: {}\n        {}\n  \
                 request 01JDZ · answered by m2 (leader m1, term 7)",
                hints[0], hints[1]
            )
        );
    }

    #[test]
    fn a_violation_is_said_once() {
        let mut violations = quorate_model::InvalidList::default();
        violations.push("name", "is too long");
        let error = ApiError::invalid(Reason::JobInvalid, "the job", violations);
        let failure = Failure::of_api(&error);
        let shown = failure.to_text(Style::plain());
        assert!(shown.starts_with("error: the job is not valid  "), "{shown}");
        assert_eq!(shown.matches("name: is too long").count(), 1, "{shown}");
    }

    #[test]
    fn a_read_whose_endpoints_all_refuse_is_unreachable_however_short_the_time() {
        let refused =
            Try { endpoint: "127.0.0.1:1".into(), times: 1, failure: "cannot connect: refused".into() };
        let shown = |tries| {
            text(ClientError::Deadline {
                after: Duration::from_millis(50),
                tries,
                last: None,
                request_id: None,
                outcome_unknown: false,
            })
        };
        assert!(shown(vec![refused.clone()]).1.contains("UNREACHABLE"));
        let silent = Try { failure: "no answer in time".into(), ..refused.clone() };
        let (exit, late) = shown(vec![refused, silent]);
        assert!(exit == 9 && late.contains("READ_TIMEOUT") && late.contains("--consistency stale"), "{late}");
    }

    #[test]
    fn nobody_reachable_lists_what_was_tried() {
        let tries =
            vec![Try { endpoint: "127.0.0.1:1".into(), times: 4, failure: "cannot connect: refused".into() }];
        let (exit, shown) = text(ClientError::Unreachable { tries });
        assert_eq!(exit, 9);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "error: no manager can be reached                            [UNAVAILABLE · UNREACHABLE]",
                "  127.0.0.1:1: cannot connect: refused (4 times)"
            ]
        );
        assert!(lines[2].starts_with("  hint: "), "{shown}");
    }

    #[test]
    fn a_write_that_ran_out_of_time_says_what_is_not_known() {
        let (exit, shown) = text(ClientError::Deadline {
            after: Duration::from_secs(10),
            tries: Vec::new(),
            last: None,
            request_id: Some("01JDZ".into()),
            outcome_unknown: true,
        });
        assert_eq!(exit, 9);
        assert!(shown.starts_with("error: no answer within 10s "), "{shown}");
        assert!(shown.contains("[DEADLINE_EXCEEDED · COMMIT_TIMEOUT]"), "{shown}");
        assert!(shown.contains("not known whether the write happened"), "{shown}");
        assert!(shown.contains("repeat it with --request-id 01JDZ"), "{shown}");
    }

    #[test]
    fn a_cluster_without_a_leader_is_told_in_its_own_words() {
        let last = Some(Box::new(ApiError::new(Reason::NoLeader, "m1 knows no leader")));
        let (exit, shown) = text(ClientError::Deadline {
            after: Duration::from_secs(10),
            tries: Vec::new(),
            last,
            request_id: Some("01JDZ".into()),
            outcome_unknown: false,
        });
        assert_eq!(exit, 9);
        assert!(shown.starts_with("error: no answer within 10s: m1 knows no leader"), "{shown}");
        assert!(shown.contains("[UNAVAILABLE · NO_LEADER]"), "{shown}");
    }

    #[test]
    fn several_failures_become_one_with_the_gravest_exit_code() {
        let late = Failure::new(9, "job a is not there yet").detail("a[0]: pending").hint("look");
        let unplaced = Failure::new(3, "job b: accepted").detail("b[0]: no node").hint("elsewhere");
        let one = Failure::of_all(vec![late, unplaced]).unwrap();
        assert_eq!(one.exit, 3);
        assert_eq!(
            one.to_text(Style::plain()),
            "error: job a is not there yet\n  a[0]: pending\n  job b: accepted\n    b[0]: no node\n  hint: look"
        );
        assert!(Failure::of_all(Vec::new()).is_none());
    }

    #[test]
    fn json_carries_the_same() {
        let failure =
            Failure::new(3, "not all tasks can be placed").detail("web[3]: no node").hint("quorate ps");
        let value = failure.to_json();
        assert_eq!(
            value,
            json!({"error": {
                "message": "not all tasks can be placed",
                "details": ["web[3]: no node"],
                "hints": ["quorate ps"],
                "exitCode": 3,
            }})
        );
    }

    #[test]
    fn every_code_is_spelt_as_grpc_does() {
        assert_eq!(screaming(tonic::Code::FailedPrecondition), "FAILED_PRECONDITION");
        assert_eq!(screaming(tonic::Code::Ok), "OK");
    }
}
