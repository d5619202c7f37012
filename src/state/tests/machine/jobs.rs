//! Commands on jobs.

use std::sync::Arc;

use quorate_model::{ImagePull, Job, JobId, JobSpec, JobStatus, JobVersion, Revision, TaskState};
use quorate_state::{Change, Command, Object, Receipt, Rejection, lab::Lab, lab::with_image};

use crate::{batch, create, name, refusal, running, service};

fn apply(spec: JobSpec, expect: Option<Revision>) -> Command {
    Command::ApplyJob { spec: Arc::new(spec), expect }
}

fn delete(job: &str, purge: bool) -> Command {
    Command::DeleteJob { namespace: name("default"), name: name(job), purge, expect: None }
}

fn scale(job: &str, replicas: u32) -> Command {
    Command::ScaleJob { namespace: name("default"), name: name(job), replicas, expect: None }
}

fn record(lab: &Lab, id: JobId) -> Job {
    (*lab.job_record(id).unwrap()).clone()
}

#[test]
fn a_job_is_created_once_and_then_changed_by_version() {
    let mut lab = Lab::new();
    let applied = lab.apply(apply(service(2), None));
    let id = JobId(0);
    let receipt = |version, created, unchanged| {
        Ok(Receipt::Job { id, version: JobVersion(version), created, unchanged })
    };
    assert_eq!(applied.outcome, receipt(1, true, false));
    assert_eq!(applied.events[0].change, Change::Created);
    let again = lab.apply(apply(service(2), None));
    assert_eq!((again.outcome, again.events.len()), (receipt(1, false, true), 0), "the same is no change");
    assert_eq!(lab.apply(apply(service(3), None)).outcome, receipt(2, false, false));
    let job = record(&lab, id);
    assert_eq!((job.specs.len(), job.same_since), (2, JobVersion(1)), "a new count replaces no task");
    lab.done(apply(with_image(service(3), "app:2"), None)).unwrap();
    assert_eq!(record(&lab, id).same_since, JobVersion(3));
}

#[test]
fn an_etag_guards_against_lost_updates() {
    let mut lab = Lab::new();
    let missing = refusal(&mut lab, apply(service(1), Some(Revision(7))));
    assert!(matches!(missing, Rejection::EtagMismatch { stored: Revision(0), sent: Revision(7), .. }));
    lab.done(apply(service(1), Some(Revision(0)))).unwrap();
    let edited = record(&lab, JobId(0)).edited;
    assert!(matches!(
        refusal(&mut lab, apply(service(2), Some(Revision(0)))),
        Rejection::EtagMismatch { stored, .. } if stored == edited
    ));
    lab.done(apply(service(2), Some(edited))).unwrap();
    let stale = Command::ScaleJob {
        namespace: name("default"),
        name: name("web"),
        replicas: 5,
        expect: Some(edited),
    };
    assert!(matches!(refusal(&mut lab, stale), Rejection::EtagMismatch { .. }));
}

#[test]
fn the_end_of_a_task_does_not_move_the_etag() {
    let (mut lab, job, task) = running();
    let before = record(&lab, job);
    lab.report(task, TaskState::Failed).unwrap();
    let after = record(&lab, job);
    assert_eq!((after.edited, after.failed), (before.edited, 1));
    assert!(after.changed > before.changed);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let mut lab = Lab::new();
    lab.job(service(1)).unwrap();
    lab.job(batch(1)).unwrap();
    let mut invalid = service(1);
    invalid.priority = 0;
    let mut other_type = batch(1);
    other_type.name = name("web");
    assert!(matches!(refusal(&mut lab, apply(invalid, None)), Rejection::JobInvalid(_)));
    assert!(matches!(refusal(&mut lab, apply(other_type, None)), Rejection::JobTypeChanged { .. }));
    assert!(matches!(refusal(&mut lab, scale("import", 2)), Rejection::NotScalable { .. }));
    assert!(matches!(refusal(&mut lab, scale("nope", 2)), Rejection::JobNotFound { .. }));
    assert!(matches!(refusal(&mut lab, scale("web", u32::MAX)), Rejection::JobInvalid(_)));
    assert!(matches!(refusal(&mut lab, delete("nope", false)), Rejection::JobNotFound { .. }));
    let gone = Command::ForgetJob { job: JobId(99) };
    assert!(matches!(refusal(&mut lab, gone), Rejection::Gone { what: "job", id: 99 }));
    let active = Command::ForgetJob { job: JobId(0) };
    assert!(matches!(refusal(&mut lab, active), Rejection::WrongJobStatus { .. }));
    let stopped = Command::SetJobStatus { job: JobId(0), version: JobVersion(1), status: JobStatus::Stopped };
    assert!(matches!(refusal(&mut lab, stopped), Rejection::WrongJobStatus { .. }));
}

#[test]
fn a_job_is_stopped_restarted_purged_and_forgotten() {
    let (mut lab, job, task) = running();
    lab.done(delete("web", false)).unwrap();
    assert_eq!(record(&lab, job).status, JobStatus::Stopped);
    assert!(matches!(lab.done(delete("web", false)).unwrap(), Receipt::Job { unchanged: true, .. }));
    lab.done(apply(service(1), None)).unwrap();
    assert_eq!((record(&lab, job).status, record(&lab, job).version), (JobStatus::Active, JobVersion(2)));
    lab.done(delete("web", true)).unwrap();
    assert!(matches!(refusal(&mut lab, apply(service(1), None)), Rejection::JobPurging { .. }));
    assert!(matches!(refusal(&mut lab, scale("web", 1)), Rejection::JobPurging { .. }));
    let early = refusal(&mut lab, Command::ForgetJob { job });
    assert!(matches!(early, Rejection::WrongJobStatus { .. }), "its task is still there");
    lab.report(task, TaskState::Shutdown).unwrap();
    lab.done(Command::RemoveTasks { tasks: vec![task] }).unwrap();
    let applied = lab.apply(Command::ForgetJob { job });
    assert!(matches!(
        (applied.events[0].change, &applied.events[0].object),
        (Change::Deleted, Object::Job(_))
    ));
    assert!(lab.state.job(job).is_none() && lab.state.job_named(&name("default"), &name("web")).is_none());
    assert_eq!(lab.job(service(1)).unwrap(), JobId(1), "numbers are never used again");
}

#[test]
fn old_versions_are_kept_while_a_task_runs_them_and_dropped_after() {
    let (mut lab, job, _) = running();
    for image in 0..30 {
        lab.done(apply(with_image(service(1), &format!("app:{image}")), None)).unwrap();
    }
    let specs = record(&lab, job).specs;
    assert!(specs.contains_key(&JobVersion(1)), "a task runs it");
    assert!(specs.len() <= 12, "{} versions kept", specs.len());
}

#[test]
fn a_batch_that_ended_counts_afresh_when_it_gets_something_new_to_do() {
    let (mut lab, _, _) = running();
    let job = lab.job(batch(1)).unwrap();
    create(&mut lab, job, 1);
    let task = lab.state.tasks_of(job).next().unwrap().id;
    let node = lab.state.nodes().next().unwrap().id;
    lab.done(Command::AssignTasks { placements: vec![(task, node)] }).unwrap();
    lab.report(task, TaskState::Complete).unwrap();
    assert_eq!(record(&lab, job).succeeded, 1);
    let end =
        |version| Command::SetJobStatus { job, version: JobVersion(version), status: JobStatus::Complete };
    lab.done(end(1)).unwrap();
    lab.done(apply(batch(2), None)).unwrap();
    assert_eq!((record(&lab, job).succeeded, record(&lab, job).status), (0, JobStatus::Active));
    let late = refusal(&mut lab, end(1));
    assert!(matches!(late, Rejection::WrongJobStatus { .. }), "that end is not the new version's");
}

#[test]
fn an_edit_says_who_made_it_and_when_and_a_refusal_names_them() {
    let mut lab = Lab::new();
    lab.done(apply(service(1), None)).unwrap();
    let job = record(&lab, JobId(0));
    assert_eq!((&*job.edited_by, job.edited_at), ("lab", lab.now));
    let Rejection::EtagMismatch { by, at, .. } = refusal(&mut lab, apply(service(2), Some(Revision(0))))
    else {
        panic!("it must be refused for its etag")
    };
    assert_eq!((&*by, at), ("lab", job.edited_at));
    let mut delete = delete("web", false);
    if let Command::DeleteJob { expect, .. } = &mut delete {
        *expect = Some(Revision(99));
    }
    assert!(matches!(refusal(&mut lab, delete), Rejection::EtagMismatch { sent: Revision(99), .. }));
    assert_eq!(record(&lab, JobId(0)).status, JobStatus::Active);
}

#[test]
fn a_digest_that_managers_filled_in_makes_no_new_version_unless_the_image_is_pulled_always() {
    let pinned = |pull, digit: &str| {
        let mut spec = service(1);
        for container in spec.containers.values_mut() {
            container.pull = pull;
            container.digest = Some(format!("sha256:{}", digit.repeat(64)));
        }
        spec
    };
    for (pull, version) in [(ImagePull::IfMissing, 1), (ImagePull::Always, 2)] {
        let mut lab = Lab::new();
        lab.done(apply(pinned(pull, "a"), None)).unwrap();
        lab.done(apply(pinned(pull, "b"), None)).unwrap();
        assert_eq!(record(&lab, JobId(0)).version, JobVersion(version), "{pull:?}");
    }
}
