//! Writes against the state that is there in the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Rule, Violation, requests};
use crate::history::{Call, Op, Outcome};

/// A job of the final, linearizable listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    /// Its name.
    pub name: String,
    /// Its version: 1 unless it was written again.
    pub version: u32,
    /// Whether a user stopped it, so that it goes away or is gone already but for its tasks.
    pub ending: bool,
}

/// Everything that the calls promise of the jobs. Each name is created by one request at most, and deleted by one.
pub fn check(calls: &[Call], jobs: &[JobFact]) -> Vec<Violation> {
    let mut found = requests::check(calls);
    let calls = requests::merged(calls);
    let fates = fates(&calls);
    let mut listed: BTreeMap<&str, &JobFact> = BTreeMap::new();
    for job in jobs {
        if listed.insert(&job.name, job).is_some() {
            found.push(violation(Rule::DoneOnce, format!("job {} is listed twice", job.name)));
        }
        if job.version != 1 && !job.ending {
            let detail = format!("job {} was created once and has version {}", job.name, job.version);
            found.push(violation(Rule::DoneOnce, detail));
        }
        if !fates.contains_key(job.name.as_str()) {
            found.push(violation(Rule::NothingUnasked, format!("nobody created job {}", job.name)));
        }
    }
    for (name, fate) in &fates {
        found.extend(fate.judge(name, listed.get(name).copied()));
    }
    found.extend(revisions_follow_time(&calls));
    found
}

/// The calls about one job.
#[derive(Default)]
struct Fate<'a> {
    create: Option<&'a Call>,
    delete: Option<&'a Call>,
}

fn fates(calls: &[Call]) -> BTreeMap<&str, Fate<'_>> {
    let mut fates: BTreeMap<&str, Fate<'_>> = BTreeMap::new();
    for call in calls {
        let fate = fates.entry(&call.key).or_default();
        match call.op {
            Op::Create => fate.create = Some(call),
            Op::Delete => fate.delete = Some(call),
        }
    }
    fates
}

impl Fate<'_> {
    fn judge(&self, name: &str, job: Option<&JobFact>) -> Option<Violation> {
        let created = self.create.map(|call| call.outcome);
        let deleted = self.delete.map(|call| call.outcome);
        let say = |rule, text: String, call: Option<&Call>| {
            let told = call.map_or_else(String::new, |call| {
                format!(
                    " (call {}, request {}, answered by {})",
                    call.id,
                    call.request_id,
                    call.manager.as_deref().unwrap_or("nobody")
                )
            });
            Some(violation(rule, text + &told))
        };
        match (created, deleted, job) {
            (Some(Outcome::Ok), None | Some(Outcome::Fail), None) => say(
                Rule::AcknowledgedIsThere,
                format!("job {name} was acknowledged and is lost"),
                self.create,
            ),
            (Some(Outcome::Ok), None | Some(Outcome::Fail), Some(job)) if job.ending => {
                say(Rule::AcknowledgedIsThere, format!("job {name} ends and nobody ended it"), self.create)
            }
            (_, Some(Outcome::Ok), Some(job)) if !job.ending => say(
                Rule::AcknowledgedIsThere,
                format!("job {name} lives on, and its end was acknowledged"),
                self.delete,
            ),
            (Some(Outcome::Fail), _, Some(_)) => {
                say(Rule::RefusedIsNotThere, format!("job {name} was refused and is there"), self.create)
            }
            _ => None,
        }
    }
}

/// If one write was acknowledged before another began, its revision is not the higher one.
fn revisions_follow_time(calls: &[Call]) -> Vec<Violation> {
    let acknowledged = || calls.iter().filter_map(|call| Some((call, call.revision?)));
    let mut by_end: Vec<_> = acknowledged().collect();
    by_end.sort_by_key(|(call, _)| call.returned);
    let mut by_begin: Vec<_> = acknowledged().collect();
    by_begin.sort_by_key(|(call, _)| call.invoke);

    let mut found = Vec::new();
    let mut highest: Option<(&Call, u64)> = None;
    let mut ended = by_end.into_iter().peekable();
    for (call, revision) in by_begin {
        while let Some(&(earlier, before)) = ended.peek()
            && earlier.returned < call.invoke
        {
            if highest.is_none_or(|(_, high)| before > high) {
                highest = Some((earlier, before));
            }
            ended.next();
        }
        if let Some((earlier, high)) = highest
            && high > revision
        {
            let detail = format!(
                "job {} has revision {revision}, and {} was acknowledged before it began, at {high}",
                call.key, earlier.key
            );
            found.push(violation(Rule::RevisionsFollowTime, detail));
        }
    }
    found
}

/// How the calls ended, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Acknowledged.
    pub acknowledged: usize,
    /// Refused.
    pub refused: usize,
    /// Nobody knows.
    pub unknown: usize,
    /// Calls that were further tries of a request, sent to another manager.
    pub repeated: usize,
    /// Clients that called.
    pub clients: usize,
}

/// Counts the calls.
pub fn tally(calls: &[Call]) -> Tally {
    let count = |outcome| calls.iter().filter(|call| call.outcome == outcome).count();
    Tally {
        acknowledged: count(Outcome::Ok),
        refused: count(Outcome::Fail),
        unknown: count(Outcome::Unknown),
        repeated: requests::repeats(calls),
        clients: calls.iter().map(|call| &call.client).collect::<BTreeSet<_>>().len(),
    }
}

fn violation(rule: Rule, detail: String) -> Violation {
    Violation { rule, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op, key: &str, outcome: Outcome) -> Call {
        Call {
            id: 0,
            client: "w1".to_owned(),
            op,
            key: key.to_owned(),
            request_id: format!("{op:?}-{key}"),
            invoke: 0,
            returned: 10,
            outcome,
            revision: None,
            manager: Some("m1".to_owned()),
            error: None,
        }
    }

    fn job(name: &str) -> JobFact {
        JobFact { name: name.to_owned(), version: 1, ending: false }
    }

    fn rules(calls: &[Call], jobs: &[JobFact]) -> Vec<Rule> {
        check(calls, jobs).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_history_in_which_everything_holds_has_no_violation() {
        let calls = [
            call(Op::Create, "kept", Outcome::Ok),
            call(Op::Create, "gone", Outcome::Ok),
            call(Op::Delete, "gone", Outcome::Ok),
            call(Op::Create, "going", Outcome::Ok),
            call(Op::Delete, "going", Outcome::Ok),
            call(Op::Create, "perhaps-not", Outcome::Unknown),
            call(Op::Create, "perhaps", Outcome::Unknown),
            call(Op::Create, "perhaps-deleted", Outcome::Ok),
            call(Op::Delete, "perhaps-deleted", Outcome::Unknown),
            call(Op::Create, "refused", Outcome::Fail),
        ];
        let going = JobFact { ending: true, ..job("going") };
        assert_eq!(rules(&calls, &[job("kept"), going, job("perhaps")]), []);
    }

    #[test]
    fn a_write_is_judged_by_all_its_tries() {
        let calls = [
            call(Op::Create, "a", Outcome::Unknown),
            call(Op::Create, "a", Outcome::Ok),
            call(Op::Create, "a", Outcome::Fail),
        ];
        assert_eq!(rules(&calls, &[job("a")]), []);
        assert_eq!(rules(&calls, &[]), [Rule::AcknowledgedIsThere]);
    }

    #[test]
    fn a_late_try_with_the_first_answer_does_not_go_back_in_time() {
        let write = |key: &str, invoke, returned, revision| Call {
            invoke,
            returned,
            revision: Some(revision),
            ..call(Op::Create, key, Outcome::Ok)
        };
        let calls = [write("a", 0, 10, 5), write("b", 11, 20, 6), write("a", 21, 30, 5)];
        assert_eq!(rules(&calls, &[job("a"), job("b")]), []);
    }

    #[test]
    fn an_acknowledged_job_that_is_lost_is_found() {
        assert_eq!(rules(&[call(Op::Create, "a", Outcome::Ok)], &[]), [Rule::AcknowledgedIsThere]);
    }

    #[test]
    fn an_acknowledged_job_that_ends_by_itself_is_found() {
        let ending = JobFact { ending: true, ..job("a") };
        assert_eq!(rules(&[call(Op::Create, "a", Outcome::Ok)], &[ending]), [Rule::AcknowledgedIsThere]);
    }

    #[test]
    fn a_job_whose_end_was_acknowledged_and_that_lives_on_is_found() {
        let calls = [call(Op::Create, "a", Outcome::Ok), call(Op::Delete, "a", Outcome::Ok)];
        assert_eq!(rules(&calls, &[job("a")]), [Rule::AcknowledgedIsThere]);
    }

    #[test]
    fn a_job_that_is_listed_twice_is_found() {
        assert_eq!(rules(&[call(Op::Create, "a", Outcome::Ok)], &[job("a"), job("a")]), [Rule::DoneOnce]);
    }

    #[test]
    fn a_job_that_was_written_twice_is_found() {
        let twice = JobFact { version: 2, ..job("a") };
        assert_eq!(rules(&[call(Op::Create, "a", Outcome::Ok)], &[twice]), [Rule::DoneOnce]);
    }

    #[test]
    fn a_retry_that_meets_its_own_first_try_is_found() {
        let error = Some("ETAG_MISMATCH: there is one".to_owned());
        let own = Call { error, ..call(Op::Create, "a", Outcome::Unknown) };
        assert_eq!(rules(&[own], &[job("a")]), [Rule::DoneOnce]);
    }

    #[test]
    fn a_refused_job_that_is_there_is_found() {
        assert_eq!(rules(&[call(Op::Create, "a", Outcome::Fail)], &[job("a")]), [Rule::RefusedIsNotThere]);
    }

    #[test]
    fn a_job_that_nobody_created_is_found() {
        assert_eq!(rules(&[], &[job("ghost")]), [Rule::NothingUnasked]);
    }

    #[test]
    fn a_revision_that_goes_back_in_real_time_is_found() {
        let write = |key: &str, invoke, returned, revision| Call {
            invoke,
            returned,
            revision: Some(revision),
            ..call(Op::Create, key, Outcome::Ok)
        };
        let jobs = [job("a"), job("b"), job("c")];
        // b overlaps a and may come before it; c begins after both ended.
        let fine = [write("a", 0, 10, 5), write("b", 5, 20, 4), write("c", 21, 30, 5)];
        assert_eq!(rules(&fine, &jobs), []);
        let back = [write("a", 0, 10, 5), write("b", 5, 20, 4), write("c", 21, 30, 4)];
        assert_eq!(rules(&back, &jobs), [Rule::RevisionsFollowTime]);
    }

    #[test]
    fn calls_are_counted_by_outcome() {
        let calls = [
            call(Op::Create, "a", Outcome::Ok),
            call(Op::Create, "b", Outcome::Unknown),
            call(Op::Create, "c", Outcome::Ok),
            call(Op::Create, "c", Outcome::Ok),
        ];
        assert_eq!(tally(&calls), Tally { acknowledged: 3, refused: 0, unknown: 1, repeated: 1, clients: 1 });
    }
}
