//! Jobs: what users submit.

use std::{collections::BTreeMap, sync::Arc};

use quorate_base::time::Timestamp;

use crate::{
    Constraint, ContainerSpec, ImagePull, InvalidList, JobId, JobVersion, Name, Port, ReschedulePolicy,
    Resources, RestartPolicy, Revision, RuntimeKind, Strategy, TraceContext, Volume, node::check_labels,
    policy,
};

/// Most replicas, completions or tasks at once of one job.
pub const MAX_TASKS_PER_JOB: u32 = 1_000_000;
/// Most bytes of one encoded specification.
pub const MAX_SPEC_BYTES: usize = 1 << 20;
/// Most constraints, ports, volumes or mounts of one job.
const MAX_ITEMS: usize = 256;

/// What kind of work a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// A number of replicas that always run.
    Service {
        /// How many.
        replicas: u32,
    },
    /// Tasks that run to completion.
    Batch {
        /// How many successful runs.
        completions: u32,
        /// How many at once.
        parallelism: u32,
    },
}

impl JobKind {
    /// `service` or `batch`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service { .. } => "service",
            Self::Batch { .. } => "batch",
        }
    }

    /// Whether both are services or both are batches.
    #[must_use]
    pub fn same_type(self, other: Self) -> bool {
        self.as_str() == other.as_str()
    }

    /// Tasks that should live at once when nothing ended yet.
    #[must_use]
    pub fn width(self) -> u32 {
        match self {
            Self::Service { replicas } => replicas,
            Self::Batch { completions, parallelism } => completions.min(parallelism),
        }
    }
}

/// Where tasks may and should go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// All must hold.
    pub constraints: Vec<Constraint>,
    /// Most tasks of this job on one node; 0 = no bound.
    pub max_per_node: u32,
    /// How nodes are preferred; `None` = the cluster's default.
    pub strategy: Option<Strategy>,
}

/// A job as the user wrote it, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Namespace.
    pub namespace: Name,
    /// Name, unique in the namespace.
    pub name: Name,
    /// What kind of work.
    pub kind: JobKind,
    /// 1–100; the higher is placed first.
    pub priority: u8,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
    /// Where.
    pub placement: Placement,
    /// Restarts on the node.
    pub restart: RestartPolicy,
    /// Replacement by the leader.
    pub reschedule: ReschedulePolicy,
    /// Ports by name.
    pub ports: BTreeMap<Name, Port>,
    /// Volumes by name.
    pub volumes: BTreeMap<Name, Volume>,
    /// Containers by name; this version runs exactly one.
    pub containers: BTreeMap<Name, ContainerSpec>,
}

impl JobSpec {
    /// Checks every rule.
    ///
    /// # Errors
    /// All violations at once, with the paths of the job file.
    pub fn validate(&self) -> Result<(), InvalidList> {
        let mut out = InvalidList::default();
        self.check_kind(&mut out);
        if !(1..=100).contains(&self.priority) {
            out.push("priority", format!("{} is out of range: 1 to 100", self.priority));
        }
        check_labels("labels", &self.labels, &mut out);
        for (path, count) in [
            ("placement.constraints", self.placement.constraints.len()),
            ("ports", self.ports.len()),
            ("volumes", self.volumes.len()),
        ] {
            if count > MAX_ITEMS {
                out.push(path, format!("{count} are too many: at most {MAX_ITEMS}"));
            }
        }
        policy::check(&self.restart, &self.reschedule, &mut out);
        self.check_ports(&mut out);
        self.check_volumes(&mut out);
        match self.containers.len() {
            0 => out.push("containers", "a job needs a container: give image or containers"),
            1 => {}
            n => out.push(
                "containers",
                format!("{n} containers: this version runs one per task; make several jobs"),
            ),
        }
        for (name, container) in &self.containers {
            container.check(&format!("containers.{name}"), &self.volumes, &mut out);
        }
        out.into_result()
    }

    fn check_kind(&self, out: &mut InvalidList) {
        let mut bound = |path: &str, value: u32, least: u32| {
            if !(least..=MAX_TASKS_PER_JOB).contains(&value) {
                out.push(path, format!("{value} is out of range: {least} to {MAX_TASKS_PER_JOB}"));
            }
        };
        match self.kind {
            JobKind::Service { replicas } => bound("replicas", replicas, 0),
            JobKind::Batch { completions, parallelism } => {
                bound("completions", completions, 1);
                bound("parallelism", parallelism, 1);
            }
        }
    }

    fn check_ports(&self, out: &mut InvalidList) {
        let mut taken = BTreeMap::new();
        let process = self.containers.values().any(|c| c.runtime == RuntimeKind::Process);
        for (name, port) in &self.ports {
            if port.container == 0 {
                out.push(format!("ports.{name}.container"), "must be 1 to 65535");
            }
            let Some(host) = port.host else { continue };
            if host == 0 {
                out.push(format!("ports.{name}.publish.port"), "must be 1 to 65535");
            }
            if process && host != port.container {
                out.push(
                    format!("ports.{name}.publish.port"),
                    "the process runtime cannot map ports: publish the same port that the process listens on",
                );
            }
            if let Some(other) = taken.insert((host, port.udp), name) {
                out.push(
                    format!("ports.{name}.publish.port"),
                    format!("{host} is also published by ports.{other}"),
                );
            }
        }
    }

    fn check_volumes(&self, out: &mut InvalidList) {
        for (name, volume) in &self.volumes {
            match volume {
                Volume::Bind { source } if !source.starts_with('/') => {
                    out.push(
                        format!("volumes.{name}.source"),
                        format!("{source:?} must be an absolute path"),
                    );
                }
                Volume::Named { source } if source.is_empty() || source.contains('/') => {
                    out.push(format!("volumes.{name}.source"), format!("{source:?} is no volume name"));
                }
                Volume::Bind { .. } | Volume::Named { .. } | Volume::Tmpfs { .. } => {}
            }
        }
    }

    /// What one task reserves: the sum over its containers.
    #[must_use]
    pub fn reserve(&self) -> Resources {
        self.containers.values().fold(Resources::default(), |sum, c| sum.plus(c.reserve))
    }

    /// Ports that one task takes on its node, with whether they are UDP.
    pub fn host_ports(&self) -> impl Iterator<Item = (u16, bool)> + '_ {
        self.ports.values().filter_map(|p| p.host.map(|host| (host, p.udp)))
    }

    /// Whether a user wrote the same: digests that managers filled in do not count, except where the image is pulled
    /// before every start, since then the user asks for what the reference stands for now.
    #[must_use]
    pub fn written_like(&self, other: &Self) -> bool {
        let bare = |spec: &Self| {
            let mut spec = spec.clone();
            for container in spec.containers.values_mut().filter(|c| c.pull != ImagePull::Always) {
                container.digest = None;
            }
            spec
        };
        self == other || bare(self) == bare(other)
    }

    /// Whether tasks of `other` would run the very same: nothing but counts, priority or labels differ.
    ///
    /// Where it holds, an update replaces no task.
    #[must_use]
    pub fn runs_like(&self, other: &Self) -> bool {
        self.containers == other.containers
            && self.ports == other.ports
            && self.volumes == other.volumes
            && self.restart == other.restart
            && self.placement.constraints == other.placement.constraints
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum JobStatus {
    /// Wanted.
    #[default]
    Active,
    /// A batch that reached its completions.
    Complete,
    /// A batch that used up its replacements.
    Failed,
    /// Stopped by a user.
    Stopped,
    /// Stopped by a user and to be forgotten once its tasks are gone.
    Purging,
}

impl JobStatus {
    /// Lower-case word for users.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Purging => "purging",
        }
    }

    /// Whether its tasks are wanted.
    #[must_use]
    pub fn wants_tasks(self) -> bool {
        self == Self::Active
    }
}

/// A job in the replicated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Dense number.
    pub id: JobId,
    /// Namespace; never changes.
    pub namespace: Name,
    /// Name; never changes.
    pub name: Name,
    /// Newest version.
    pub version: JobVersion,
    /// The oldest version whose tasks run like the newest one's: those are not replaced.
    pub same_since: JobVersion,
    /// Specifications by version: the newest ones and all that tasks still run.
    pub specs: BTreeMap<JobVersion, Arc<JobSpec>>,
    /// How far it is.
    pub status: JobStatus,
    /// Batch: successful runs so far, also of tasks that are forgotten.
    pub succeeded: u32,
    /// Tasks that ended badly so far, also forgotten ones.
    pub failed: u32,
    /// Revision of creation.
    pub created: Revision,
    /// Revision of the last change by a user: the etag, which the end of a task does not move.
    pub edited: Revision,
    /// Who edited it last, by principal.
    pub edited_by: Arc<str>,
    /// When it was edited last.
    pub edited_at: Timestamp,
    /// Trace that the last edit belongs to.
    pub trace: Option<TraceContext>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its specification or status changed last.
    pub changed_at: Timestamp,
    /// Revision of the last change.
    pub changed: Revision,
}

impl Job {
    /// The newest specification.
    ///
    /// The state machine keeps it as long as the job; `None` would be a damaged image.
    #[must_use]
    pub fn spec(&self) -> Option<&Arc<JobSpec>> {
        self.specs.get(&self.version)
    }

    /// `namespace/name`
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether a task of `version` runs what the newest version wants.
    #[must_use]
    pub fn is_current(&self, version: JobVersion) -> bool {
        version >= self.same_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, RestartCondition};

    pub(crate) fn service(replicas: u32) -> JobSpec {
        let container = ContainerSpec {
            image: Some("web:1".into()),
            reserve: Resources { cpu_millis: 100, memory_bytes: 32 << 20 },
            ..ContainerSpec::default()
        };
        JobSpec {
            namespace: Name::default_namespace(),
            name: "web".parse().unwrap(),
            kind: JobKind::Service { replicas },
            priority: 50,
            labels: BTreeMap::new(),
            placement: Placement::default(),
            restart: RestartPolicy::default(),
            reschedule: ReschedulePolicy::default(),
            ports: BTreeMap::new(),
            volumes: BTreeMap::new(),
            containers: [("app".parse().unwrap(), container)].into(),
        }
    }

    fn paths(spec: &JobSpec) -> Vec<String> {
        spec.validate().err().map(|l| l.0.into_iter().map(|i| i.path).collect()).unwrap_or_default()
    }

    #[test]
    fn a_plain_service_is_legal() {
        assert_eq!(paths(&service(3)), Vec::<String>::new());
    }

    #[test]
    fn every_broken_rule_is_reported_at_its_path() {
        let mut spec = service(MAX_TASKS_PER_JOB + 1);
        spec.priority = 0;
        spec.restart.delay = std::time::Duration::from_secs(120);
        spec.restart.condition = RestartCondition::Never;
        let port = Port { container: 80, host: Some(8080), udp: false };
        spec.ports = [("a".parse().unwrap(), port.clone()), ("b".parse().unwrap(), port)].into();
        spec.volumes = [("v".parse().unwrap(), Volume::Bind { source: "rel".into() })].into();
        let app = spec.containers.values_mut().next().unwrap();
        app.image = None;
        app.workdir = Some("x".into());
        app.limit = Limits { cpu_millis: 50, ..Limits::default() };
        app.stop.signal = "TERM".into();
        assert_eq!(
            paths(&spec),
            [
                "replicas",
                "priority",
                "restart.delay",
                "ports.b.publish.port",
                "volumes.v.source",
                "containers.app.image",
                "containers.app.workdir",
                "containers.app.resources.reserve.cpu",
                "containers.app.stop.signal",
            ]
        );
    }

    #[test]
    fn the_process_runtime_refuses_what_it_cannot_do() {
        let mut spec = service(1);
        let app = spec.containers.values_mut().next().unwrap();
        app.runtime = RuntimeKind::Process;
        app.limit.memory_bytes = 64 << 20;
        assert_eq!(
            paths(&spec),
            ["containers.app.image", "containers.app.command", "containers.app.resources.limit.memory"]
        );
    }

    #[test]
    fn scaling_replaces_nothing_and_a_new_image_does() {
        let old = service(1);
        assert!(old.runs_like(&service(5)));
        let mut new = service(1);
        new.containers.values_mut().next().unwrap().image = Some("web:2".into());
        assert!(!old.runs_like(&new));
    }
}
