//! What runs: containers, their mounts, ports and volumes.

use std::{collections::BTreeMap, time::Duration};

use crate::{InvalidList, Limits, Name, Resources, quantity};

/// Who executes a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RuntimeKind {
    /// The node's Docker engine.
    #[default]
    Docker,
    /// A plain process group of the agent's host.
    Process,
    /// Simulated by the agent; for tests and load experiments, offered only by agents that ask for it.
    Fake,
}

impl RuntimeKind {
    /// All runtimes, in order.
    pub const ALL: [Self; 3] = [Self::Docker, Self::Process, Self::Fake];

    /// The word of the job file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
            Self::Fake => "fake",
        }
    }

    /// Reads the word of the job file.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ImagePull {
    /// Only when the node does not have it.
    #[default]
    IfMissing,
    /// Before every start of a task.
    Always,
    /// Never: the image must be there.
    Never,
}

/// How a container is asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopPolicy {
    /// Signal name, e.g. `SIGTERM`.
    pub signal: String,
    /// Time between the signal and SIGKILL.
    pub grace: Duration,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self { signal: "SIGTERM".to_owned(), grace: Duration::from_secs(10) }
    }
}

/// Signals that a container may be stopped with.
pub const STOP_SIGNALS: [&str; 8] =
    ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGWINCH"];

/// A volume of the job, shared by its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// A folder of the node.
    Bind {
        /// Absolute path on the node; must exist there.
        source: String,
    },
    /// A volume managed by the runtime, kept between tasks of a node.
    Named {
        /// Name in the runtime.
        source: String,
    },
    /// Memory, gone with the container.
    Tmpfs {
        /// Most bytes; 0 = the runtime's default.
        size_bytes: u64,
    },
}

/// Kind of a volume, as a word for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountKind {
    /// See [`Volume::Bind`].
    Bind,
    /// See [`Volume::Named`].
    Named,
    /// See [`Volume::Tmpfs`].
    Tmpfs,
}

impl Volume {
    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> MountKind {
        match self {
            Self::Bind { .. } => MountKind::Bind,
            Self::Named { .. } => MountKind::Named,
            Self::Tmpfs { .. } => MountKind::Tmpfs,
        }
    }
}

/// Where a volume appears in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Name of a volume of the job.
    pub volume: Name,
    /// Absolute path in the container.
    pub target: String,
    /// Whether the container may only read.
    pub read_only: bool,
}

/// A port that a container listens on, published on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Port inside the container, 1–65535.
    pub container: u16,
    /// Port on the node, 1–65535; `None` = not published.
    pub host: Option<u16>,
    /// Whether it is UDP instead of TCP.
    pub udp: bool,
}

/// One container of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerSpec {
    /// Who runs it.
    pub runtime: RuntimeKind,
    /// Image reference; required for docker, refused for process.
    pub image: Option<String>,
    /// What the reference stood for when the job was submitted (`sha256:` and 64 hexadecimal digits), so that every
    /// task runs the very same image; `None` = not pinned.
    pub digest: Option<String>,
    /// When the image is pulled.
    pub pull: ImagePull,
    /// The program (entry point); empty = the image's own. Required for process.
    pub command: Vec<String>,
    /// Its arguments; empty = the image's own.
    pub args: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; `None` = the image's or the agent's own.
    pub user: Option<String>,
    /// Absolute working directory.
    pub workdir: Option<String>,
    /// Volumes that it sees.
    pub mounts: Vec<Mount>,
    /// What it reserves on its node.
    pub reserve: Resources,
    /// What it may use at most.
    pub limit: Limits,
    /// How it is stopped.
    pub stop: StopPolicy,
}

impl ContainerSpec {
    /// Checks everything that needs no other part of the job.
    pub(crate) fn check(&self, path: &str, volumes: &BTreeMap<Name, Volume>, out: &mut InvalidList) {
        self.check_program(path, out);
        for (i, text) in self.command.iter().chain(&self.args).enumerate() {
            check_text(&format!("{path}.command/args[{i}]"), text, out);
        }
        for (key, value) in &self.env {
            if key.is_empty() || key.contains('=') || key.contains('\0') {
                out.push(format!("{path}.env"), format!("{key:?} is no variable name"));
            }
            check_text(&format!("{path}.env.{key}"), value, out);
        }
        if let Some(user) = &self.user
            && (user.is_empty() || user.matches(':').count() > 1 || user.chars().any(char::is_whitespace))
        {
            out.push(format!("{path}.user"), format!("{user:?}: write user, uid, user:group or uid:gid"));
        }
        if let Some(dir) = &self.workdir
            && !dir.starts_with('/')
        {
            out.push(format!("{path}.workdir"), format!("{dir:?} must be an absolute path"));
        }
        self.check_mounts(path, volumes, out);
        quantity::check(&format!("{path}.resources"), self.reserve, self.limit, out);
        if !STOP_SIGNALS.contains(&self.stop.signal.as_str()) {
            out.push(
                format!("{path}.stop.signal"),
                format!("{:?} is unknown: one of {}", self.stop.signal, STOP_SIGNALS.join(", ")),
            );
        }
        if self.stop.grace > Duration::from_secs(3600) {
            out.push(format!("{path}.stop.grace"), "longer than an hour");
        }
    }

    fn check_program(&self, path: &str, out: &mut InvalidList) {
        match (self.runtime, &self.image) {
            (RuntimeKind::Docker, None) => {
                out.push(format!("{path}.image"), "required: the docker runtime needs an image");
            }
            (RuntimeKind::Docker, Some(image)) => {
                if image.is_empty()
                    || image.len() > 512
                    || image.chars().any(|c| c.is_whitespace() || c.is_control())
                {
                    out.push(format!("{path}.image"), format!("{image:?} is no image reference"));
                }
            }
            (RuntimeKind::Process, Some(_)) => {
                out.push(
                    format!("{path}.image"),
                    "the process runtime has no images: remove it or use docker",
                );
            }
            (RuntimeKind::Process, None) | (RuntimeKind::Fake, _) => {}
        }
        if let Some(digest) = &self.digest
            && !is_digest(digest)
        {
            out.push(
                format!("{path}.digest"),
                format!("{digest:?}: write sha256: and 64 hexadecimal digits, or leave it out"),
            );
        }
        if self.runtime == RuntimeKind::Process {
            if self.command.is_empty() {
                out.push(format!("{path}.command"), "required: the process runtime needs a program");
            }
            for (field, given) in [
                ("resources.limit.cpu", self.limit.cpu_millis != 0),
                ("resources.limit.memory", self.limit.memory_bytes != 0),
                ("resources.limit.pids", self.limit.pids != 0),
                ("mounts", !self.mounts.is_empty()),
            ] {
                if given {
                    out.push(
                        format!("{path}.{field}"),
                        "the process runtime cannot enforce this: remove it or use docker",
                    );
                }
            }
        }
        if self.command.first().is_some_and(String::is_empty) {
            out.push(format!("{path}.command[0]"), "the program must not be empty");
        }
    }

    fn check_mounts(&self, path: &str, volumes: &BTreeMap<Name, Volume>, out: &mut InvalidList) {
        let mut targets = std::collections::BTreeSet::new();
        for (i, mount) in self.mounts.iter().enumerate() {
            let at = format!("{path}.mounts[{i}]");
            if !volumes.contains_key(&mount.volume) {
                out.push(
                    format!("{at}.volume"),
                    format!("no volume {:?} in this job: add it under volumes", mount.volume),
                );
            }
            if !mount.target.starts_with('/') || mount.target == "/" {
                out.push(
                    format!("{at}.target"),
                    format!("{:?} must be an absolute path below /", mount.target),
                );
            }
            if !targets.insert(&mount.target) {
                out.push(format!("{at}.target"), format!("{:?} is mounted twice", mount.target));
            }
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    })
}

fn check_text(path: &str, text: &str, out: &mut InvalidList) {
    if text.contains('\0') {
        out.push(path, "must not contain a NUL byte");
    }
}
