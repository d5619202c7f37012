//! The state as a sequence of records: what an image stores and a digest covers.

use std::sync::Arc;

use quorate_base::{id::ClusterId, time::Timestamp};
use quorate_model::{Epoch, Job, Manager, Node, Settings, Task};

use crate::{Halt, Position, RequestRecord, State};

/// What is not in a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// Identity of the cluster, once named.
    pub cluster: Option<ClusterId>,
    /// The cluster's epoch.
    pub epoch: Epoch,
    /// Settings.
    pub settings: Arc<Settings>,
    /// Newest applied entry.
    pub applied: Position,
    /// Replicated time.
    pub now: Timestamp,
    /// Next job number.
    pub next_job: u32,
    /// Next node number.
    pub next_node: u32,
    /// Next task number.
    pub next_task: u64,
    /// Order number of the next remembered request.
    pub next_request: u64,
}

/// One record of an image. The order of kinds and keys is fixed: equal states give equal records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Always the first.
    Meta(Meta),
    /// A manager.
    Manager(Arc<Manager>),
    /// A node.
    Node(Arc<Node>),
    /// A job.
    Job(Arc<Job>),
    /// A task; its job and node come before it.
    Task(Arc<Task>),
    /// An answered request, in order of arrival.
    Request(Arc<RequestRecord>),
}

impl State {
    /// The records in their fixed order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        std::iter::once(Record::Meta(self.meta.clone()))
            .chain(self.managers.values().cloned().map(Record::Manager))
            .chain(self.nodes.values().cloned().map(Record::Node))
            .chain(self.jobs.values().cloned().map(Record::Job))
            .chain(self.tasks.values().cloned().map(Record::Task))
            .chain(
                self.request_order
                    .values()
                    .filter_map(|k| self.requests.get(k).cloned().map(Record::Request)),
            )
    }
}

/// Builds a state from the records of an image and re-creates its indexes.
#[derive(Debug, Default)]
pub struct Builder {
    state: State,
    started: bool,
}

impl Builder {
    /// Takes the next record.
    ///
    /// # Errors
    /// [`Halt::Inconsistent`] when records contradict each other or come out of order.
    pub fn push(&mut self, record: Record) -> Result<(), Halt> {
        let state = &mut self.state;
        let first = !std::mem::replace(&mut self.started, true);
        if first != matches!(record, Record::Meta(_)) {
            return Err(Halt::Inconsistent("an image must begin with its one meta record".to_owned()));
        }
        match record {
            Record::Meta(meta) => state.meta = meta,
            Record::Manager(manager) => {
                state.managers.insert(manager.id, manager);
            }
            Record::Node(node) => {
                state.put_node(Arc::unwrap_or_clone(node));
            }
            Record::Job(job) => {
                if job.spec().is_none() {
                    return Err(Halt::Inconsistent(format!(
                        "job {} lacks its version {}",
                        job.key(),
                        job.version
                    )));
                }
                state.put_job(Arc::unwrap_or_clone(job));
            }
            Record::Task(task) => {
                if state.spec_of(&task).is_none() {
                    return Err(Halt::Inconsistent(format!("task {} has no specification", task.id)));
                }
                if task.node.is_some_and(|node| state.node(node).is_none()) {
                    return Err(Halt::Inconsistent(format!("task {} is on an unknown node", task.id)));
                }
                state.put_task(Arc::unwrap_or_clone(task));
            }
            Record::Request(request) => state.put_request(Arc::unwrap_or_clone(request)),
        }
        Ok(())
    }

    /// The finished state.
    ///
    /// # Errors
    /// [`Halt::Inconsistent`] when nothing was pushed.
    pub fn finish(self) -> Result<State, Halt> {
        if self.started { Ok(self.state) } else { Err(Halt::Inconsistent("the image is empty".to_owned())) }
    }
}
