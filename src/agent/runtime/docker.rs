//! Containers of the node's Docker engine. Only this module and those below it name bollard.
//!
//! A container is found again by its name and its labels; it is not removed when it ends, so its exit code is there for
//! an agent that was away. Ends arrive by the engine's wait call: nothing polls.

mod auth;
mod create;
mod exec;
mod fault;
mod image;
mod logs;
mod look;
mod oom;
mod stats;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, EventsOptionsBuilder, KillContainerOptionsBuilder,
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use quorate_base::Clock;
use quorate_model::{ContainerSpec, RuntimeKind, StopPolicy, TaskId};
use quorate_wire::status::ApiError;
use tokio::sync::mpsc;

use super::streams::{Exec, LogItem, LogRead};
use super::{Counters, Owner, PullProgress, Runtime, Unit, Work};
use crate::config::DockerConfig;
use crate::step::{Fault, Seen};
use fault::{Trouble, is_status};

/// The longest that the engine may take to answer a call, in seconds.
const CALL_SECONDS: u64 = 60;
/// The longest that a container may live on after SIGKILL before the stop counts as failed.
const KILL_DEADLINE: Duration = Duration::from_secs(30);
/// How long the event of a lack of memory may come after the container's end: more than a second on a busy machine.
const LATE: Duration = Duration::from_secs(3);
/// Between looks at an engine that ended a wait without an answer.
const AGAIN: Duration = Duration::from_millis(200);

/// Runs containers in the Docker engine.
#[derive(Debug)]
pub struct DockerRuntime {
    config: DockerConfig,
    clock: Clock,
    /// The client, once the engine has answered.
    engine: RwLock<Option<Docker>>,
    /// What the engine said of itself.
    host: RwLock<Host>,
    images: image::Images,
    ooms: oom::Ooms,
}

/// What an engine says of itself.
#[derive(Debug, Clone, Default)]
struct Host {
    /// Where it keeps images and containers.
    root: Option<PathBuf>,
    /// The registry of images whose names say none, as logins are kept under it.
    index: String,
}

impl DockerRuntime {
    /// A runtime; the engine need not answer yet.
    #[must_use]
    pub fn new(config: DockerConfig, clock: Clock) -> Self {
        Self {
            config,
            clock,
            engine: RwLock::new(None),
            host: RwLock::default(),
            images: image::Images::default(),
            ooms: oom::Ooms::default(),
        }
    }

    async fn connect(&self) -> Result<String, Fault> {
        let client = match &self.config.socket {
            Some(path) => Docker::connect_with_unix(&socket_text(path), CALL_SECONDS, API_DEFAULT_VERSION),
            None => Docker::connect_with_defaults(),
        };
        let client = client.map_err(|error| Trouble::Connect.fault(&error))?;
        let client = client.with_timeout(Duration::from_secs(CALL_SECONDS));
        // An older engine refuses the newest version of the interface.
        let client = client.negotiate_version().await.map_err(|error| Trouble::Connect.fault(&error))?;
        let version = client.version().await.map_err(|error| Trouble::Connect.fault(&error))?;
        let info = client.info().await.map_err(|error| Trouble::Connect.fault(&error))?;
        let (root, index) = (info.docker_root_dir.map(PathBuf::from), info.index_server_address);
        *self.host.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Host { root, index: index.unwrap_or_default() };
        *self.engine.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(client);
        Ok(version.version.unwrap_or_default())
    }

    /// A client; connects first where that was not done yet.
    async fn engine(&self) -> Result<Docker, Fault> {
        let known = self.engine.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let Some(client) = known {
            return Ok(client);
        }
        self.connect().await?;
        let known = self.engine.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        known.ok_or_else(|| Fault::unavailable("the Docker engine does not answer"))
    }

    fn host(&self) -> Host {
        self.host.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Gets the image that `spec` means, with the login that its registry wants.
    async fn provide(&self, spec: &ContainerSpec) -> Result<(), Fault> {
        let engine = self.engine().await?;
        let reference = image::reference(spec);
        let login = || auth::find(self.config.auth_file.as_deref(), &reference, &self.host().index);
        self.images.provide(&engine, &reference, spec.pull, login).await
    }

    async fn inspect_container(&self, unit: &Unit) -> Result<Option<ContainerInspectResponse>, Fault> {
        let engine = self.engine().await?;
        match engine.inspect_container(&unit.to_string(), None).await {
            Ok(container) => Ok(Some(container)),
            Err(error) if is_status(&error, 404) => Ok(None),
            Err(error) => Err(Trouble::Inspect.fault(&error)),
        }
    }

    async fn see(&self, unit: &Unit) -> Result<Seen, Fault> {
        let Some(container) = self.inspect_container(unit).await? else { return Ok(Seen::Absent) };
        let lacked_memory = self.ooms.has(container.id.as_deref().unwrap_or_default());
        look::seen(&container, lacked_memory)
    }

    /// What is seen of a container that has just ended.
    async fn see_ended(&self, unit: &Unit) -> Result<Seen, Fault> {
        let Some(container) = self.inspect_container(unit).await? else { return Ok(Seen::Absent) };
        let id = container.id.as_deref().unwrap_or_default();
        let lacked_memory =
            look::may_have_lacked_memory(&container) && self.lacked_memory(&container, id).await;
        look::seen(&container, lacked_memory)
    }

    /// Asks the engine for the event of the container's last run. It is asked for the past too: the stream that
    /// [`Self::follow`] reads may not have stood when the event was sent.
    async fn lacked_memory(&self, container: &ContainerInspectResponse, id: &str) -> bool {
        let (Ok(engine), Some(state)) = (self.engine().await, &container.state) else { return false };
        let filters = HashMap::from([("container", vec![id]), ("event", vec!["oom"])]);
        let until = self.clock.now().saturating_add(LATE).as_millis().div_ceil(1000).to_string();
        let options = EventsOptionsBuilder::new()
            .since(state.started_at.as_deref().unwrap_or("0"))
            .until(&until)
            .filters(&filters)
            .build();
        let mut events = engine.events(Some(options));
        let found = tokio::time::timeout(LATE * 3, events.next()).await;
        let lacked = matches!(found, Ok(Some(Ok(_))));
        if lacked {
            self.ooms.note(id.to_owned());
        }
        lacked
    }

    async fn make(&self, work: &Work) -> Result<Seen, Fault> {
        let engine = self.engine().await?;
        let options = CreateContainerOptionsBuilder::new().name(&work.unit.to_string()).build();
        match engine.create_container(Some(options), create::body(work, self.config.logs)).await {
            Ok(_) => Ok(Seen::Created),
            Err(error) if is_status(&error, 409) => self.see(&work.unit).await,
            Err(error) => Err(Trouble::Create(&image::reference(&work.spec)).fault(&error)),
        }
    }

    async fn launch(&self, work: &Work) -> Result<Seen, Fault> {
        let engine = self.engine().await?;
        if let Some(ContainerInspectResponse { id: Some(id), .. }) =
            self.inspect_container(&work.unit).await?
        {
            self.ooms.forget(&id);
        }
        match engine.start_container(&work.unit.to_string(), None).await {
            Ok(()) => self.see(&work.unit).await,
            Err(error) if is_status(&error, 404) => Ok(Seen::Absent),
            Err(error) => Err(Trouble::Start.fault(&error)),
        }
    }

    async fn wait_for_end(&self, unit: &Unit) -> Result<Seen, Fault> {
        loop {
            let engine = self.engine().await?;
            let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
            // Its answer, an exit code, counts as an error when it is not 0; the look afterwards tells more.
            let answer = engine.wait_container(&unit.to_string(), Some(options)).next().await;
            match self.see_ended(unit).await? {
                Seen::Running { .. } => {
                    tracing::debug!(%unit, ?answer, "the engine ended a wait for a container that runs");
                    self.clock.sleep(AGAIN).await;
                }
                ended => return Ok(ended),
            }
        }
    }

    async fn end(&self, unit: &Unit, policy: Option<&StopPolicy>) -> Result<Seen, Fault> {
        let engine = self.engine().await?;
        let Some(container) = self.inspect_container(unit).await? else { return Ok(Seen::Absent) };
        let seen = look::seen(&container, false)?;
        let Seen::Running { .. } = seen else { return Ok(seen) };
        let StopPolicy { signal, grace } = policy.cloned().unwrap_or_else(|| look::stop_policy(&container));
        for (signal, patience) in [(signal.as_str(), grace), ("SIGKILL", KILL_DEADLINE)] {
            let options = KillContainerOptionsBuilder::new().signal(signal).build();
            match engine.kill_container(&unit.to_string(), Some(options)).await {
                Ok(()) => {}
                // Not running any more, or gone.
                Err(error) if is_status(&error, 409) || is_status(&error, 404) => {}
                Err(error) => return Err(Trouble::Stop.fault(&error)),
            }
            tokio::select! {
                ended = self.wait_for_end(unit) => return ended,
                () = self.clock.sleep(patience) => {}
            }
        }
        Err(Fault::transient(format!("container {unit} outlives SIGKILL")))
    }

    async fn delete(&self, unit: &Unit) -> Result<(), Fault> {
        let engine = self.engine().await?;
        // With the anonymous volumes that the image made for it; named ones stay.
        let options = RemoveContainerOptionsBuilder::new().v(true).build();
        match engine.remove_container(&unit.to_string(), Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if is_status(&error, 404) => Ok(()),
            Err(error) => Err(Trouble::Remove.fault(&error)),
        }
    }

    async fn all(&self, owner: &Owner) -> Result<Vec<Unit>, Fault> {
        let engine = self.engine().await?;
        let filters = HashMap::from([("label", create::owner_labels(owner))]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed =
            engine.list_containers(Some(options)).await.map_err(|error| Trouble::List.fault(&error))?;
        let labels = listed.iter().filter_map(|container| container.labels.as_ref());
        let mut all: Vec<Unit> = labels.filter_map(create::read_labels).collect();
        all.sort();
        Ok(all)
    }

    /// Follows the engine's events, and returns when it ends.
    async fn follow(&self) {
        let Ok(engine) = self.engine().await else { return };
        let filters = HashMap::from([("label", vec!["quorate.task"]), ("event", vec!["oom"])]);
        let options = EventsOptionsBuilder::new().filters(&filters).build();
        let mut events = engine.events(Some(options));
        while let Some(Ok(event)) = events.next().await {
            if let Some(id) = event.actor.and_then(|actor| actor.id) {
                self.ooms.note(id);
            }
        }
    }
}

/// bollard takes paths as text; a socket with another name could not be written into a configuration either.
fn socket_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Runtime for DockerRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Docker
    }

    fn probe(&self) -> BoxFuture<'_, Result<String, Fault>> {
        Box::pin(self.connect())
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.follow())
    }

    fn list<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Vec<Unit>, Fault>> {
        Box::pin(self.all(owner))
    }

    fn pull<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.provide(&work.spec))
    }

    fn create<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.make(work))
    }

    fn start<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.launch(work))
    }

    fn inspect<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.see(unit))
    }

    fn wait<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.wait_for_end(unit))
    }

    fn stop<'a>(
        &'a self,
        unit: &'a Unit,
        policy: Option<&'a StopPolicy>,
    ) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.end(unit, policy))
    }

    fn remove<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.delete(unit))
    }

    fn pulling(&self, spec: &ContainerSpec) -> Option<PullProgress> {
        self.images.progress(&image::reference(spec), spec.pull)
    }

    fn usage<'a>(&'a self, units: &'a [Unit]) -> BoxFuture<'a, BTreeMap<TaskId, Counters>> {
        Box::pin(async move {
            match self.engine().await {
                Ok(engine) => stats::all(&engine, units).await,
                Err(_) => BTreeMap::new(),
            }
        })
    }

    fn logs<'a>(
        &'a self,
        unit: &'a Unit,
        read: &'a LogRead,
        sink: &'a mpsc::Sender<LogItem>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.read_logs(unit, read, sink))
    }

    fn exec<'a>(&'a self, exec: Exec<'a>) -> BoxFuture<'a, Result<i32, ApiError>> {
        Box::pin(self.run_in(exec))
    }

    fn signal<'a>(&'a self, unit: &'a Unit, signal: Signal) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.signal_main(unit, signal))
    }

    fn resolve<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<String, ApiError>> {
        Box::pin(self.digest_of(image))
    }

    fn data_root(&self) -> Option<PathBuf> {
        self.host().root
    }
}
