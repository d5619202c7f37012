//! Changes as watchers see them.

use std::sync::Arc;

use quorate_model::{Job, Manager, Node, Revision, Settings, Task};

/// How an object changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// It is not what it was.
    Updated,
    /// It is gone; the event carries its last content.
    Deleted,
}

/// An object of the state, shared with the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A job.
    Job(Arc<Job>),
    /// A task.
    Task(Arc<Task>),
    /// A node.
    Node(Arc<Node>),
    /// A manager.
    Manager(Arc<Manager>),
    /// The cluster's settings.
    Settings(Arc<Settings>),
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Revision of the change.
    pub revision: Revision,
    /// How.
    pub change: Change,
    /// What, as it is afterwards.
    pub object: Object,
}
