//! Verbs against a manager that does what a test says: waiting, refusals, pages, interruption.

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    use quorate_base::sync::lock;
    use quorate_base::{TaskGroup, TaskKind};
    use quorate_model::InvalidList;
    use quorate_pki::{Profile, Security};
    use quorate_wire::api::job_service_server::{JobService, JobServiceServer};
    use quorate_wire::api::job_spec::Kind;
    use quorate_wire::api::task_service_server::{TaskService, TaskServiceServer};
    use quorate_wire::api::*;
    use quorate_wire::common::{Consistency, ResponseMeta};
    use quorate_wire::status::{ApiError, Reason};
    use tokio::sync::Notify;
    use tonic::{Request, Response, Status, Streaming};

    /// Revision of every write.
    const WRITTEN: u64 = 10;

    /// What the fake tells of the job: the view of a revision, or that there is none.
    type View = Result<(u64, Job), Reason>;

    #[derive(Default)]
    struct State {
        refusal: Option<ApiError>,
        views: VecDeque<View>,
        reads: Vec<bool>,
        tasks: Vec<Task>,
        applied: Vec<ApplyJobRequest>,
    }

    #[derive(Clone)]
    struct Fake {
        address: String,
        state: Arc<Mutex<State>>,
        read: Arc<Notify>,
    }

    impl Fake {
        async fn start(group: &TaskGroup) -> Self {
            let security = Security::PlaintextLoopback;
            let listener = security.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.local_addr().to_string();
            let fake = Self { address, state: Arc::default(), read: Arc::default() };
            let router = security
                .server(Profile::Api)
                .add_service(JobServiceServer::new(fake.clone()))
                .add_service(TaskServiceServer::new(fake.clone()));
            group.spawn(TaskKind::critical("fake"), router.serve_with_incoming(listener.incoming()));
            fake
        }

        /// What reads tell, in turn; the last for ever.
        fn tells(&self, views: impl IntoIterator<Item = View>) {
            lock(&self.state).views = views.into_iter().collect();
        }

        fn command(&self, args: &[&str]) -> Command {
            let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
            command.env("QUORATE_MANAGERS", &self.address).env("XDG_CONFIG_HOME", "/nonexistent").args(args);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        }

        async fn quorate(&self, args: &[&str]) -> (i32, String, String) {
            let mut command = self.command(args);
            let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
        }

        fn write(&self) -> Result<Option<ResponseMeta>, Status> {
            lock(&self.state).refusal.clone().map_or(Ok(Some(meta(WRITTEN))), |error| Err(error.into()))
        }
    }

    fn meta(applied_revision: u64) -> ResponseMeta {
        ResponseMeta { applied_revision, manager: "m1".into(), ..ResponseMeta::default() }
    }

    fn job(running: u32, desired: u32) -> Job {
        let counts = TaskCounts { desired, running, pending: desired - running, ..TaskCounts::default() };
        Job {
            namespace: "default".into(),
            name: "web".into(),
            version: 1,
            status: JobStatus::Active.into(),
            spec: Some(JobSpec {
                kind: Some(Kind::Service(ServiceSpec { replicas: desired })),
                ..JobSpec::default()
            }),
            counts: Some(counts),
            converged: running == desired,
            ..Job::default()
        }
    }

    #[tonic::async_trait]
    impl JobService for Fake {
        async fn apply_job(
            &self,
            request: Request<ApplyJobRequest>,
        ) -> Result<Response<ApplyJobResponse>, Status> {
            lock(&self.state).applied.push(request.into_inner());
            let (meta, job) = (self.write()?, Some(job(0, 2)));
            Ok(Response::new(ApplyJobResponse {
                meta,
                job,
                created: true,
                unchanged: false,
                revision: WRITTEN,
                warnings: Vec::new(),
            }))
        }

        async fn plan_job(&self, _: Request<PlanJobRequest>) -> Result<Response<PlanJobResponse>, Status> {
            Err(unasked())
        }

        async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<GetJobResponse>, Status> {
            let stale =
                request.into_inner().read.is_some_and(|read| read.consistency() == Consistency::Stale);
            let view = {
                let mut state = lock(&self.state);
                state.reads.push(stale);
                match state.views.len() {
                    0 | 1 => state.views.front().cloned(),
                    _ => state.views.pop_front(),
                }
            };
            self.read.notify_one();
            match view {
                Some(Ok((revision, job))) => {
                    Ok(Response::new(GetJobResponse { meta: Some(meta(revision)), job: Some(job) }))
                }
                Some(Err(reason)) => Err(ApiError::new(reason, "as the test says").into()),
                None => Err(ApiError::new(Reason::Internal, "the test says nothing").into()),
            }
        }

        async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
            Ok(Response::new(ListJobsResponse::default()))
        }

        async fn scale_job(&self, _: Request<ScaleJobRequest>) -> Result<Response<ScaleJobResponse>, Status> {
            Ok(Response::new(ScaleJobResponse { meta: self.write()?, job: None, revision: WRITTEN }))
        }

        async fn delete_job(
            &self,
            _: Request<DeleteJobRequest>,
        ) -> Result<Response<DeleteJobResponse>, Status> {
            Ok(Response::new(DeleteJobResponse { meta: self.write()?, job: None, revision: WRITTEN }))
        }
    }

    #[tonic::async_trait]
    impl TaskService for Fake {
        type ReadLogsStream = futures::stream::Empty<Result<ReadLogsResponse, Status>>;
        type ExecStream = futures::stream::Empty<Result<ExecResponse, Status>>;

        async fn stop_task(&self, _: Request<StopTaskRequest>) -> Result<Response<StopTaskResponse>, Status> {
            Err(unasked())
        }

        async fn restart_task(
            &self,
            _: Request<RestartTaskRequest>,
        ) -> Result<Response<RestartTaskResponse>, Status> {
            Err(unasked())
        }

        async fn signal_task(
            &self,
            _: Request<SignalTaskRequest>,
        ) -> Result<Response<SignalTaskResponse>, Status> {
            Err(unasked())
        }

        async fn read_logs(
            &self,
            _: Request<ReadLogsRequest>,
        ) -> Result<Response<Self::ReadLogsStream>, Status> {
            Err(unasked())
        }

        async fn exec(
            &self,
            _: Request<Streaming<ExecRequest>>,
        ) -> Result<Response<Self::ExecStream>, Status> {
            Err(unasked())
        }

        async fn get_task(&self, _: Request<GetTaskRequest>) -> Result<Response<GetTaskResponse>, Status> {
            Err(ApiError::new(Reason::TaskNotFound, "there is no such task").into())
        }

        /// Two tasks a page, whatever was asked for.
        async fn list_tasks(
            &self,
            request: Request<ListTasksRequest>,
        ) -> Result<Response<ListTasksResponse>, Status> {
            let from: usize = request.into_inner().page_token.parse().unwrap_or(0);
            let tasks = lock(&self.state).tasks.clone();
            let page: Vec<Task> = tasks.iter().skip(from).take(2).cloned().collect();
            let next = from + page.len();
            let next_page_token = if next < tasks.len() { next.to_string() } else { String::new() };
            Ok(Response::new(ListTasksResponse { meta: Some(meta(WRITTEN)), tasks: page, next_page_token }))
        }
    }

    /// What the fake says to calls that no verb under test makes.
    fn unasked() -> Status {
        ApiError::new(Reason::Internal, "the test does not expect this call").into()
    }

    fn group() -> TaskGroup {
        TaskGroup::new("test", |_| {})
    }

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
