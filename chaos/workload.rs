//! Concurrent submits: seeded, each job with a name of its own, each call with one request id over all its tries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use quorate_base::{Clock, RequestId, RequestIds, Rng, TaskGroup, TaskKind};
use quorate_client::{ClientError, Options};
use quorate_wire::api::{JobSpec, ServiceSpec, job_spec::Kind};
use quorate_wire::common::{ContainerSpec, PullPolicy, Runtime, StopPolicy};

use crate::api::{self, Api, Refused};
use crate::history::{Begun, End, History, Op, Outcome};

/// Namespace of the jobs that writers create.
pub const NAMESPACE: &str = "chaos";
/// The image of jobs on Docker, built by `chaos/images.sh`.
pub const IMAGE: &str = "quorate-test/busybox:1";

/// Deadline of a call with all its tries.
const CALL: Duration = Duration::from_secs(20);
/// Deadline of a write that is sent to one manager, once.
const TRY: Duration = Duration::from_secs(5);
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

/// A write that clients send, once or again.
#[derive(Clone, Debug)]
pub enum Write {
    /// Of a job that must not exist.
    Create(Box<JobSpec>),
    /// The end of a job, and that it is forgotten.
    Delete {
        /// The job's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Write {
    const fn op(&self) -> Op {
        match self {
            Self::Create(_) => Op::Create,
            Self::Delete { .. } => Op::Delete,
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Create(spec) => &spec.name,
            Self::Delete { name, .. } => name,
        }
    }
}

/// Whether a write is sent a second time under the same request id, to another manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Not by us; the client tries again by itself while it has no answer.
    Never,
    /// While the first is under way.
    Meanwhile,
    /// Once the first was acknowledged, or nobody knows.
    Afterwards,
}

impl Again {
    fn draw(rng: &mut Rng, share: f64) -> Self {
        match (rng.chance(share), rng.chance(0.5)) {
            (false, _) => Self::Never,
            (true, false) => Self::Meanwhile,
            (true, true) => Self::Afterwards,
        }
    }
}

/// A client of the whole cluster, as users have it: every call is recorded.
#[derive(Clone)]
pub struct Client {
    name: String,
    client: quorate_client::Client,
    managers: Vec<Api>,
    history: Arc<History>,
    ids: Arc<RequestIds>,
}

impl Client {
    /// A client of these managers.
    ///
    /// # Errors
    /// When one has no address.
    pub fn new(
        name: &str,
        managers: &[Api],
        rng: Rng,
        history: &Arc<History>,
        ids: &Arc<RequestIds>,
    ) -> Result<Self> {
        let options = Options { deadline: CALL, ..Options::default() };
        let addresses: Vec<String> = managers.iter().map(|api| api.address.clone()).collect();
        let client = quorate_client::Client::with(&addresses, options, Clock::system(), rng)?;
        // Connections of its own: a dead one must not be mended by another client's call.
        let managers = managers.iter().map(|api| Api::new(&api.name, &api.address)).collect::<Result<_>>()?;
        let (history, ids) = (Arc::clone(history), Arc::clone(ids));
        Ok(Self { name: name.to_owned(), client, managers, history, ids })
    }

    /// Writes under a new request id; what is known of the effect after all that was sent.
    pub async fn write(&self, write: &Write, again: Again, rng: &mut Rng) -> Outcome {
        let id = self.ids.generate();
        match again {
            Again::Never => self.send(write, &id).await.outcome,
            Again::Meanwhile => {
                let (first, second) =
                    tokio::join!(self.send(write, &id), self.send_to(self.another(None, rng), write, &id));
                first.outcome.with(second)
            }
            Again::Afterwards => {
                let first = self.send(write, &id).await;
                if first.outcome == Outcome::Fail {
                    return first.outcome;
                }
                let other = self.another(first.manager.as_deref(), rng);
                first.outcome.with(self.send_to(other, write, &id).await)
            }
        }
    }

    /// A manager that is not the named one.
    fn another(&self, not: Option<&str>, rng: &mut Rng) -> Option<&Api> {
        let others: Vec<&Api> = self.managers.iter().filter(|api| Some(api.name.as_str()) != not).collect();
        rng.pick(&others).copied()
    }

    /// Sends it as users do: to whoever leads, until there is an answer.
    async fn send(&self, write: &Write, id: &RequestId) -> End {
        let begun = Begun::now(&self.history, &self.name, write.op(), write.key(), id.clone());
        let answer = match write {
            Write::Create(spec) => {
                let request = api::create_request((**spec).clone(), id);
                self.client.apply_job(request).await.map(|answer| (answer.revision, answer.meta))
            }
            Write::Delete { namespace, name } => {
                let request = api::delete_request(namespace, name, id);
                self.client.delete_job(request).await.map(|answer| (answer.revision, answer.meta))
            }
        };
        let end = match answer {
            Ok((revision, meta)) => End::acknowledged(revision, meta.unwrap_or_default().manager),
            Err(error) => {
                let Refused { outcome, error } = judge(&error);
                End { outcome, revision: None, manager: None, error: Some(error) }
            }
        };
        begun.end(&self.history, end.clone());
        end
    }

    /// Sends it to one manager, once.
    async fn send_to(&self, manager: Option<&Api>, write: &Write, id: &RequestId) -> Outcome {
        let Some(manager) = manager else { return Outcome::Fail };
        let begun = Begun::now(&self.history, &self.name, write.op(), write.key(), id.clone());
        let answer = match write {
            Write::Create(spec) => manager.create((**spec).clone(), id, TRY).await,
            Write::Delete { namespace, name } => manager.delete(namespace, name, id, TRY).await,
        };
        let end = End::of(manager, &answer);
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
    /// Share of the writes that are sent twice.
    pub again: f64,
}

/// Writers that write until they are stopped.
#[derive(Debug)]
pub struct Writers(TaskGroup);

impl Writers {
    /// Starts them below `group`.
    ///
    /// # Errors
    /// When a manager has no address.
    pub fn start(
        plan: &Plan,
        managers: &[Api],
        history: &Arc<History>,
        ids: &Arc<RequestIds>,
        group: &TaskGroup,
    ) -> Result<Self> {
        let group = group.child("writers");
        let mut rng = Rng::seeded(plan.seed);
        for number in 0..plan.writers {
            let name = format!("w{number}");
            let own = rng.fork(&name);
            let client = Client::new(&name, managers, own, history, ids)?;
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
        let again = Again::draw(&mut rng, plan.again);
        let outcome = Box::pin(client.write(&Write::Create(Box::new(spec)), again, &mut rng)).await;
        if outcome == Outcome::Ok && (with_task || rng.chance(0.2)) {
            let end = Write::Delete { namespace: NAMESPACE.to_owned(), name: job };
            let again = Again::draw(&mut rng, plan.again);
            Box::pin(client.write(&end, again, &mut rng)).await;
        }
        tokio::select! {
            () = group.cancelled() => {}
            () = clock.sleep(rng.jitter(plan.rest, 0.5)) => {}
        }
    }
    Ok(())
}
