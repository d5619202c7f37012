//! Verbs against a manager that does what a test says: waiting, refusals, pages, interruption.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use quorate_base::sync::lock;
    use quorate_model::InvalidList;
    use quorate_wire::api::*;
    use quorate_wire::common::ResponseMeta;
    use quorate_wire::status::{ApiError, Reason};

    use crate::support::{Fake, WRITTEN, group, job};

    fn file(folder: &tempfile::TempDir) -> String {
        let path = folder.path().join("web.yaml");
        std::fs::write(&path, "apiVersion: quorate/v1\nname: web\nreplicas: 2\nimage: web:1\n").unwrap();
        path.to_string_lossy().into_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn run_waits_for_a_view_that_includes_its_write_and_has_converged() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        // The first is from before the write: whatever it says does not count.
        fake.tells([Ok((WRITTEN - 1, job(2, 2))), Ok((WRITTEN, job(1, 2))), Ok((WRITTEN + 1, job(2, 2)))]);
        let (code, out, err) = fake.quorate(&["run", &file(&folder)]).await;
        assert_eq!(
            (code, out.as_str()),
            (0, "job default/web: created (version 1)   revision 10\n"),
            "{err}"
        );
        let lines: Vec<&str> = err.lines().collect();
        assert!(
            lines[0].ends_with(" job=default/web version=1 running=1 desired=2 pending=1 failed=0"),
            "{err}"
        );
        assert!(lines[1].ends_with(" job=default/web version=1 running=2 desired=2 failed=0"), "{err}");
        assert!(lines[2].starts_with("✔ job default/web: active, 2/2 after "), "{err}");
        let state = lock(&fake.state);
        assert!(state.reads.len() > 3 && state.reads.iter().all(|stale| *stale), "{:?}", state.reads);
        assert_eq!(state.applied[0].request_id.len(), 26);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tasks_that_find_no_place_within_the_time_are_explained() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        fake.tells([Ok((WRITTEN, job(1, 2)))]);
        let summary = "3 of 3 nodes: need 64 CPU, best free 2".to_owned();
        let failure = PlacementFailure { summary, ..PlacementFailure::default() };
        lock(&fake.state).tasks = vec![Task {
            id: "t7".into(),
            namespace: "default".into(),
            job: "web".into(),
            slot: 1,
            state: TaskState::Pending.into(),
            placement_failure: Some(failure),
            ..Task::default()
        }];
        let (code, _, err) = fake.quorate(&["run", &file(&folder), "--timeout", "1s"]).await;
        assert_eq!(code, 3, "{err}");
        assert!(
            err.contains("error: job default/web: accepted, but 1 of its tasks cannot be placed\n"),
            "{err}"
        );
        assert!(err.contains("\n  web[1] pending: 3 of 3 nodes: need 64 CPU, best free 2\n"), "{err}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replicas_that_gave_up_are_named_with_the_reason_and_what_helps() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        let counts = TaskCounts { desired: 2, running: 1, given_up: 1, failed: 4, ..TaskCounts::default() };
        fake.tells([Ok((WRITTEN, Job { counts: Some(counts), ..job(1, 2) }))]);
        let task = |id: &str, slot, state: TaskState| Task {
            id: id.into(),
            job: "web".into(),
            slot,
            state: state.into(),
            running_since: (state == TaskState::Running).then(Default::default),
            ..Task::default()
        };
        let failed = Task { reason: "exit 3".into(), ..task("t8", 1, TaskState::Failed) };
        lock(&fake.state).tasks = vec![task("t7", 0, TaskState::Running), failed];
        let file = file(&folder);
        for args in [&["run", &file][..], &["scale", "web=2"], &["status", "web"]] {
            let (code, _, err) = fake.quorate(args).await;
            assert_eq!(code, 4, "{args:?}: {err}");
            assert!(err.contains("error: job default/web: 1 replica failed too often"), "{err}");
            assert!(err.contains("\n  web[1] gave up: failed: exit 3\n  hint: "), "{err}");
            assert!(err.contains("quorate stop default/web, then"), "{err}");
        }
        let (_, out, _) = fake.quorate(&["ps", "web"]).await;
        assert!(out.contains("t8  web[1]") && out.contains("exit 3"), "{out}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failed_job_and_one_that_takes_too_long_have_their_own_exit_codes() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        let failed = Job { status: JobStatus::Failed.into(), ..job(0, 2) };
        fake.tells([Ok((WRITTEN, failed))]);
        let (code, _, err) = fake.quorate(&["run", &file(&folder)]).await;
        assert_eq!(code, 4);
        assert!(err.contains("error: job default/web failed\n  hint: quorate ps default/web -a"), "{err}");
        let starting =
            Job { counts: Some(TaskCounts { desired: 2, starting: 2, ..Default::default() }), ..job(0, 2) };
        fake.tells([Ok((WRITTEN, starting))]);
        let (code, _, err) = fake.quorate(&["scale", "web=2", "--timeout", "1s"]).await;
        assert_eq!(code, 9);
        assert!(err.contains("error: job default/web is not there yet; the work goes on\n"), "{err}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_purged_job_is_gone_when_a_quorum_says_so() {
        let group = group();
        let fake = Fake::start(&group).await;
        let purging = Job { status: JobStatus::Purging.into(), ..job(0, 0) };
        // The first "not found" is of a stale view, the second one of a quorum.
        fake.tells([Ok((WRITTEN, purging)), Err(Reason::JobNotFound), Err(Reason::JobNotFound)]);
        let (code, _, err) = fake.quorate(&["stop", "web", "--purge", "--yes"]).await;
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("✔ job default/web: is gone after "), "{err}");
        assert_eq!(lock(&fake.state).reads, [true, true, false]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refusal_points_into_the_file() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        let mut violations = InvalidList::default();
        violations.push("containers.app.image", "is on the list of forbidden images");
        lock(&fake.state).refusal = Some(ApiError::invalid(Reason::JobInvalid, "the job", violations));
        let name = file(&folder);
        let (code, out, err) = fake.quorate(&["run", &name]).await;
        assert_eq!((code, out.as_str()), (5, ""));
        let place = format!(
            "\n{name}:4:8: containers.app.image: is on the list of forbidden images\n    |\n  4 | image: web:1\n"
        );
        assert!(err.contains("[INVALID_ARGUMENT · JOB_INVALID]") && err.contains(&place), "{err}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn detached_and_dry_runs_do_not_look() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        let name = file(&folder);
        let (code, _, err) = fake.quorate(&["run", &name, "-d", "--request-id", "mine", "--etag", "0"]).await;
        assert_eq!((code, err.as_str()), (0, ""));
        let (code, out, _) = fake.quorate(&["run", &name, "--dry-run"]).await;
        assert_eq!((code, out.as_str()), (0, "job default/web is valid; nothing was written\n"));
        let state = lock(&fake.state);
        assert!(state.reads.is_empty());
        let first = &state.applied[0];
        assert_eq!(
            (first.request_id.as_str(), first.etag.as_str(), first.validate_only),
            ("mine", "0", false)
        );
        assert!(state.applied[1].validate_only);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_interruption_ends_the_waiting_and_says_that_the_work_goes_on() {
        let (group, folder) = (group(), tempfile::tempdir().unwrap());
        let fake = Fake::start(&group).await;
        fake.tells([Ok((WRITTEN, job(1, 2)))]);
        let child = fake.command(&["run", &file(&folder)]).spawn().unwrap();
        // It waits, and so listens for the signal, before it looks.
        fake.read.notified().await;
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{err}");
        assert!(err.contains("error: stopped waiting; the work on job default/web goes on\n"), "{err}");
        assert!(
            err.contains("hint: quorate job wait default/web    wait on\n        quorate ps default/web "),
            "{err}"
        );
    }

    /// A snapshot of one job at revision 10, and that the present is reached.
    fn told(leader: &str) -> Vec<WatchResponse> {
        let meta = ResponseMeta { manager: "m1".into(), leader: leader.into(), ..ResponseMeta::default() };
        let change =
            Change { kind: ChangeKind::Present.into(), object: Some(change::Object::Job(job(2, 2))) };
        let present = WatchResponse {
            revision: WRITTEN,
            changes: vec![change],
            snapshot: true,
            meta: Some(meta.clone()),
            ..WatchResponse::default()
        };
        let reached =
            WatchResponse { revision: WRITTEN, bookmark: true, meta: Some(meta), ..WatchResponse::default() };
        vec![present, reached]
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn events_end_where_the_present_is_reached() {
        let group = group();
        let fake = Fake::start(&group).await;
        lock(&fake.state).watch = told("m1");
        let (code, out, err) = fake.quorate(&["events", "--kind", "job,node", "--job", "shop/web"]).await;
        assert_eq!(code, 0, "{err}");
        assert_eq!(
            out,
            "      10  –                         job      present  default/web  version 1, active, 2/2\n"
        );
        let (_, out, _) = fake.quorate(&["events", "-o", "jsonl"]).await;
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&value["revision"], &value["job"]["name"]), (&"10".into(), &"web".into()));
        let (_, out, _) = fake.quorate(&["events", "-q"]).await;
        assert_eq!(out, "default/web\n");
        let asked = lock(&fake.state).watched[0].clone();
        assert_eq!((asked.namespace.as_str(), asked.job.as_str()), ("shop", "web"));
        assert_eq!(asked.kinds, [ObjectKind::Job as i32, ObjectKind::Node as i32]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_watched_wait_does_not_ask_again_and_again_and_tells_of_a_new_leader() {
        let group = group();
        let fake = Fake::start(&group).await;
        lock(&fake.state).watch = told("m2");
        fake.tells([Ok((WRITTEN, job(2, 2)))]);
        let (code, _, err) = fake.quorate(&["job", "wait", "web", "--timeout", "30s"]).await;
        assert_eq!(code, 0, "{err}");
        assert!(err.contains(" leader m1 → m2, continuing\n"), "{err}");
        // Once of a quorum, at first, when the watch begins, and before the last word.
        let reads = lock(&fake.state).reads.len();
        assert!((3..=6).contains(&reads), "{reads}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lists_are_read_to_their_last_page() {
        let group = group();
        let fake = Fake::start(&group).await;
        let task = |n: u32| Task { id: format!("t{n}"), slot: n, job: "web".into(), ..Task::default() };
        lock(&fake.state).tasks = (0..5).map(task).collect();
        let (code, out, err) = fake.quorate(&["ps", "-q"]).await;
        assert_eq!((code, out.as_str(), err.as_str()), (0, "t0\nt1\nt2\nt3\nt4\n", ""));
        let (_, out, _) = fake.quorate(&["ps", "-o", "json"]).await;
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((value["tasks"].as_array().unwrap().len(), value.get("nextPageToken")), (5, None));
    }
}
