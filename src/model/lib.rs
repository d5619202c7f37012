//! The nouns of Quorate and their rules.
//!
//! Plain data, validated on the way in: nothing here reads a clock, draws
//! entropy, logs or waits. The replicated state machine (`quorate-state`)
//! stores these types, the wire crate converts them, everyone else reads them.
//!
//! A value that was built through [`JobSpec::validate`] and its kin is legal;
//! what is not legal comes back as a list of [`Invalid`], each with the path
//! of the field (as in the job file) and the reason, so that a user can mend
//! every mistake at once.

pub mod cluster;
pub mod constraint;
pub mod container;
pub mod explain;
pub mod ids;
pub mod invalid;
pub mod job;
pub mod name;
pub mod node;
pub mod policy;
pub mod quantity;
pub mod selector;
pub mod task;
pub mod trace;

pub use cluster::{ClusterVersion, Manager, Settings, Strategy};
pub use constraint::{Attribute, Constraint, Operator};
pub use container::{ContainerSpec, ImagePull, Mount, MountKind, Port, RuntimeKind, StopPolicy, Volume};
pub use explain::{Explanation, Filter, Reason};
pub use ids::{Epoch, JobId, JobVersion, NodeId, RaftId, Revision, Slot, TaskId, Term};
pub use invalid::{Invalid, InvalidList};
pub use job::{Job, JobKind, JobSpec, JobStatus, Placement};
pub use name::Name;
pub use node::{Node, NodeCondition, NodeFacts, NodeStatus};
pub use policy::{ReschedulePolicy, RestartCondition, RestartPolicy};
pub use quantity::{Limits, Resources};
pub use selector::Selector;
pub use task::{Task, TaskEvent, TaskEventKind, TaskState, TaskStatus};
pub use trace::TraceContext;
