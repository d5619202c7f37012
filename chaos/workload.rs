//! Concurrent submits: seeded, each job with a name of its own, each call with one request id over all its tries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use quorate_base::{Clock, RequestIds, Rng, TaskGroup, TaskKind};
use quorate_client::{ClientError, Options};
use quorate_wire::api::{ApplyJobRequest, DeleteJobRequest, JobSpec, ServiceSpec, job_spec::Kind};
use quorate_wire::common::{ContainerSpec, PullPolicy, ResponseMeta, Runtime, StopPolicy};

use crate::api::Refused;
use crate::history::{Begun, End, History, Op, Outcome};

/// Namespace of the jobs that writers create.
pub const NAMESPACE: &str = "chaos";
/// The image of jobs on Docker, built by `chaos/images.sh`.
pub const IMAGE: &str = "quorate-test/busybox:1";

/// Deadline of a call with all its tries.
const CALL: Duration = Duration::from_secs(20);
/// How long a stopping writer may take for the call that it is in.
const STOP: Duration = Duration::from_secs(30);

/// What the jobs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Containers of the test image.
    Docker,
    /// Processes.
    Process,
    /// Nothing real.
    Fake,
}

impl On {
    /// The name that agents and people use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
            Self::Fake => "fake",
        }
    }
}

/// A service whose tasks do nothing but run.
pub fn idle_service(namespace: &str, name: &str, on: On, replicas: u32) -> JobSpec {
    let sleep = || vec!["/bin/sh".to_owned(), "-c".to_owned(), "exec sleep 1000000".to_owned()];
    let (runtime, image, command) = match on {
        On::Docker => (Runtime::Docker, IMAGE.to_owned(), sleep()),
        On::Process => (Runtime::Process, String::new(), sleep()),
        On::Fake => (Runtime::Fake, String::new(), Vec::new()),
    };
    let container = ContainerSpec {
        runtime: runtime.into(),
        image,
        pull: PullPolicy::Never.into(),
        command,
        // The first process of a container ignores SIGTERM unless it handles it.
        stop: Some(StopPolicy { signal: "SIGKILL".to_owned(), grace: None }),
        ..ContainerSpec::default()
    };
    JobSpec {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        kind: Some(Kind::Service(ServiceSpec { replicas })),
        containers: BTreeMap::from([("main".to_owned(), container)]),
        ..JobSpec::default()
    }
}

/// A client of the whole cluster, as users have it: every call is recorded.
#[derive(Clone)]
pub struct Client {
    name: String,
    client: quorate_client::Client,
    history: Arc<History>,
    ids: Arc<RequestIds>,
}

impl Client {
    /// A client of the managers at `addresses`.
    ///
    /// # Errors
    /// When one is no address.
    pub fn new(
        name: &str,
        addresses: &[String],
        rng: Rng,
        history: &Arc<History>,
        ids: &Arc<RequestIds>,
    ) -> Result<Self> {
        let options = Options { deadline: CALL, ..Options::default() };
        let client = quorate_client::Client::with(addresses, options, Clock::system(), rng)?;
        Ok(Self { name: name.to_owned(), client, history: Arc::clone(history), ids: Arc::clone(ids) })
    }

    /// Creates a job that must not exist.
    pub async fn create(&self, spec: JobSpec) -> Outcome {
        let id = self.ids.generate();
        let begun = Begun::now(&self.history, &self.name, Op::Create, &spec.name, id.clone());
        let request = ApplyJobRequest {
            spec: Some(spec),
            etag: "0".to_owned(),
            request_id: id.to_string(),
            ..ApplyJobRequest::default()
        };
        let answer = self.client.apply_job(request).await;
        self.end(begun, answer.map(|answer| (answer.revision, answer.meta)))
    }

    /// Stops a job and has it forgotten.
    pub async fn delete(&self, namespace: &str, name: &str) -> Outcome {
        let id = self.ids.generate();
        let begun = Begun::now(&self.history, &self.name, Op::Delete, name, id.clone());
        let request = DeleteJobRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            purge: true,
            request_id: id.to_string(),
            ..DeleteJobRequest::default()
        };
        let answer = self.client.delete_job(request).await;
        self.end(begun, answer.map(|answer| (answer.revision, answer.meta)))
    }

    fn end(&self, begun: Begun, answer: Result<(u64, Option<ResponseMeta>), ClientError>) -> Outcome {
        let end = match answer {
            Ok((revision, meta)) => End::acknowledged(revision, meta.unwrap_or_default().manager),
            Err(error) => {
                let Refused { outcome, error } = judge(&error);
                End { outcome, revision: None, manager: None, error: Some(error) }
            }
        };
        let outcome = end.outcome;
        begun.end(&self.history, end);
        outcome
    }
}

/// What the client crate says of the effect of a call that failed. Its word is held to: "not done" is checked.
fn judge(error: &ClientError) -> Refused {
    match error {
        ClientError::Api { error, .. } => Refused::by(error),
        ClientError::Deadline { outcome_unknown: false, .. }
        | ClientError::Unreachable { .. }
        | ClientError::Address(_)
        | ClientError::NoManagers
        | ClientError::RequestId(_) => Refused { outcome: Outcome::Fail, error: told(error) },
        ClientError::Deadline { .. } | ClientError::Foreign { .. } => {
            Refused { outcome: Outcome::Unknown, error: told(error) }
        }
    }
}

fn told(error: &ClientError) -> String {
    let tries: Vec<String> = error.tries().iter().map(ToString::to_string).collect();
    format!("{error} [{}]", tries.join("; "))
}

/// How writers write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many at once.
    pub writers: usize,
    /// Rest of a writer between two jobs.
    pub rest: Duration,
    /// Decides which jobs are deleted again, and where writers begin.
    pub seed: u64,
    /// Every how many-th job has a task, on the fake runtime.
    pub task_every: u64,
}

/// Writers that write until they are stopped.
#[derive(Debug)]
pub struct Writers(TaskGroup);

impl Writers {
    /// Starts them below `group`.
    ///
    /// # Errors
    /// When one of `addresses` is none.
    pub fn start(
        plan: &Plan,
        addresses: &[String],
        history: &Arc<History>,
        ids: &Arc<RequestIds>,
        group: &TaskGroup,
    ) -> Result<Self> {
        let group = group.child("writers");
        let mut rng = Rng::seeded(plan.seed);
        for number in 0..plan.writers {
            let name = format!("w{number}");
            let own = rng.fork(&name);
            let client = Client::new(&name, addresses, own, history, ids)?;
            let writer = write(client, name, plan.clone(), rng.fork("jobs"), group.clone());
            group.spawn(TaskKind::critical("writer").drains(), writer);
        }
        Ok(Self(group))
    }

    /// Stops them; calls under way come to their end.
    pub async fn stop(self) {
        self.0.shutdown(STOP).await;
    }
}

async fn write(
    client: Client,
    name: String,
    plan: Plan,
    mut rng: Rng,
    group: TaskGroup,
) -> Result<(), std::convert::Infallible> {
    let clock = Clock::system();
    let mut number = 0_u64;
    while !group.is_cancelled() {
        number += 1;
        let job = format!("{name}-{number}");
        let with_task = plan.task_every > 0 && number.is_multiple_of(plan.task_every);
        let spec = idle_service(NAMESPACE, &job, On::Fake, u32::from(with_task));
        let outcome = client.create(spec).await;
        if outcome == Outcome::Ok && (with_task || rng.chance(0.2)) {
            client.delete(NAMESPACE, &job).await;
        }
        tokio::select! {
            () = group.cancelled() => {}
            () = clock.sleep(rng.jitter(plan.rest, 0.5)) => {}
        }
    }
    Ok(())
}
