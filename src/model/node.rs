//! Worker machines.

use std::collections::{BTreeMap, BTreeSet};

use quorate_base::time::Timestamp;

use crate::{Invalid, InvalidList, Name, NodeId, Resources, Revision, RuntimeKind};

/// What the leader thinks of a node. Written by managers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum NodeStatus {
    /// Its agent holds a session with the leader, or held one within the lease.
    #[default]
    Ready,
    /// Unheard for longer than its lease: its tasks are replaced.
    Down,
}

impl NodeStatus {
    /// Lower-case word for users.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Down => "down",
        }
    }
}

/// A trouble of a node, during which no new task is placed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NodeCondition {
    /// The file system of the agent's data or of its containers is nearly full.
    DiskPressure = 1,
    /// Memory is nearly used up.
    MemoryPressure = 2,
}

impl NodeCondition {
    /// All of them, by number.
    pub const ALL: [Self; 2] = [Self::DiskPressure, Self::MemoryPressure];

    /// The number that is stored.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The condition with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|c| u32::from(c.number()) == number)
    }

    /// The word that is sent and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskPressure => "disk-pressure",
            Self::MemoryPressure => "memory-pressure",
        }
    }

    /// The condition with that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == word)
    }
}

/// What an agent says of its machine when it opens a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// The machine's host name.
    pub hostname: String,
    /// `linux`
    pub os: String,
    /// `x86_64`
    pub arch: String,
    /// Version of the agent.
    pub agent_version: String,
    /// The operator's labels, from the agent's configuration.
    pub labels: BTreeMap<String, String>,
    /// Runtimes that answer, with their version.
    pub runtimes: BTreeMap<RuntimeKind, String>,
    /// What the machine has.
    pub capacity: Resources,
    /// What the operator keeps back for the system.
    pub reserved: Resources,
    /// Its troubles, each in words.
    pub conditions: BTreeMap<NodeCondition, String>,
}

impl NodeFacts {
    /// What tasks may reserve: capacity minus what is kept back.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        self.capacity.minus(self.reserved)
    }

    /// Checks lengths and counts, so that a broken agent cannot bloat the state.
    ///
    /// # Errors
    /// All violations.
    pub fn validate(&self) -> Result<(), InvalidList> {
        let mut out = InvalidList::default();
        for (path, text) in [
            ("hostname", &self.hostname),
            ("os", &self.os),
            ("arch", &self.arch),
            ("agent_version", &self.agent_version),
        ] {
            if text.len() > 255 {
                out.push(path, "longer than 255 bytes");
            }
        }
        for (condition, text) in &self.conditions {
            if text.len() > MAX_CONDITION {
                let path = format!("conditions.{}", condition.as_str());
                out.push(path, format!("longer than {MAX_CONDITION} bytes"));
            }
        }
        check_labels("labels", &self.labels, &mut out);
        out.into_result()
    }
}

/// Longest text of a condition, in bytes.
pub const MAX_CONDITION: usize = 255;
/// Most labels of one object.
const MAX_LABELS: usize = 64;

/// Whether a text may be the key of a label.
pub(crate) fn legal_label_key(key: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !key.is_empty() && key.len() <= 128 && key.chars().all(legal)
}

pub(crate) fn check_labels(path: &str, labels: &BTreeMap<String, String>, out: &mut InvalidList) {
    if labels.len() > MAX_LABELS {
        out.push(path, format!("{} labels are too many: at most {MAX_LABELS}", labels.len()));
    }
    let mut seen = BTreeSet::new();
    for (key, value) in labels {
        if !legal_label_key(key) {
            out.0
                .push(Invalid::new(path, format!("{key:?} is no label key: 1-128 letters, digits and -_./")));
        }
        if value.len() > 256 || value.chars().any(char::is_control) {
            out.push(format!("{path}.{key}"), "a value has at most 256 bytes and no control characters");
        }
        seen.insert(key);
    }
}

/// A worker machine in the replicated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Dense number.
    pub id: NodeId,
    /// The operator's name for it.
    pub name: Name,
    /// Identity of the agent's data directory; another agent may not take the name while this one is ready.
    pub agent: String,
    /// What the agent said last.
    pub facts: NodeFacts,
    /// What the leader thinks.
    pub status: NodeStatus,
    /// Why it has that status, for users; empty when ready.
    pub reason: String,
    /// Whether the scheduler may place new tasks there.
    pub eligible: bool,
    /// When the status changed last.
    pub status_since: Timestamp,
    /// Revision of creation.
    pub created: Revision,
    /// Revision of the last change.
    pub changed: Revision,
}

impl Node {
    /// Whether new tasks may be placed there.
    #[must_use]
    pub fn takes_tasks(&self) -> bool {
        self.status == NodeStatus::Ready && self.eligible && self.facts.conditions.is_empty()
    }
}
