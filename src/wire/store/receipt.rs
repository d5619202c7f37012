//! Answers of the state machine, as they are remembered.

use quorate_model::{JobId, JobVersion, NodeId, TaskId};
use quorate_state::{Halt, Receipt};

use super::{
    pack::{deltas, ids},
    required,
};
use crate::generated::store::{self as pb, receipt::Kind};

impl From<&Receipt> for pb::Receipt {
    fn from(value: &Receipt) -> Self {
        let kind = match value {
            Receipt::Done => Kind::Done(pb::Done {}),
            Receipt::Job { id, version, created, unchanged } => Kind::Job(pb::JobReceipt {
                id: id.0,
                version: version.0,
                created: *created,
                unchanged: *unchanged,
            }),
            Receipt::Tasks { first, count } => {
                Kind::Tasks(pb::TasksReceipt { first: first.0, count: *count })
            }
            Receipt::Changed { changed, refused } => Kind::Changed(pb::ChangedReceipt {
                changed: *changed,
                refused_deltas: deltas(refused.iter().copied()),
            }),
            Receipt::Node { id } => Kind::Node(pb::NodeReceipt { id: id.0 }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Receipt> for Receipt {
    type Error = Halt;

    fn try_from(value: pb::Receipt) -> Result<Self, Halt> {
        Ok(match required("receipt", value.kind)? {
            Kind::Done(pb::Done {}) => Self::Done,
            Kind::Job(job) => Self::Job {
                id: JobId(job.id),
                version: JobVersion(job.version),
                created: job.created,
                unchanged: job.unchanged,
            },
            Kind::Tasks(tasks) => Self::Tasks { first: TaskId(tasks.first), count: tasks.count },
            Kind::Changed(some) => {
                Self::Changed { changed: some.changed, refused: ids(some.refused_deltas).collect() }
            }
            Kind::Node(node) => Self::Node { id: NodeId(node.id) },
        })
    }
}
