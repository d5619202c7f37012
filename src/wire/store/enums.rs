//! Enumerations: the same words on both sides, "unspecified" and unknown numbers refused.

use quorate_model as model;
use quorate_state::Halt;

use super::bad;
use crate::generated::store as pb;

macro_rules! same {
    ($what:literal, $name:ident = $model:path { $($variant:ident),+ }) => {
        impl From<$model> for pb::$name {
            fn from(value: $model) -> Self {
                use $model as Model;
                match value {
                    $(Model::$variant => Self::$variant,)+
                }
            }
        }

        impl TryFrom<pb::$name> for $model {
            type Error = Halt;

            fn try_from(value: pb::$name) -> Result<Self, Halt> {
                match value {
                    pb::$name::Unspecified => Err(bad($what, "is missing")),
                    $(pb::$name::$variant => Ok(Self::$variant),)+
                }
            }
        }
    };
}

same!("runtime", RuntimeKind = model::RuntimeKind { Docker, Process, Fake });
same!("pull policy", ImagePull = model::ImagePull { IfMissing, Always, Never });
same!("restart condition", RestartCondition = model::RestartCondition { Any, OnFailure, Never });
same!("strategy", Strategy = model::Strategy { Spread, Binpack });
same!("operator", Operator = model::Operator { Equal, NotEqual });
same!("job status", JobStatus = model::JobStatus { Active, Complete, Failed, Stopped, Purging });
same!("node status", NodeStatus = model::NodeStatus { Ready, Down });
same!(
    "filter",
    Filter = model::Filter { Ready, Runtime, Constraint, Cpu, Memory, Port, MaxPerNode, Pressure }
);

/// Reads an enumeration that must be set.
pub(super) fn word<P, M>(what: &str, number: i32) -> Result<M, Halt>
where
    P: TryFrom<i32>,
    M: TryFrom<P, Error = Halt>,
{
    P::try_from(number).map_err(|_| bad(what, format!("{number} is unknown")))?.try_into()
}

/// The number of an enumeration.
pub(super) fn number<P: From<M> + Into<i32>, M>(value: M) -> i32 {
    P::from(value).into()
}

/// Reads the number of a task's state.
pub(super) fn task_state(number: u32) -> Result<model::TaskState, Halt> {
    u16::try_from(number)
        .ok()
        .and_then(model::TaskState::from_number)
        .ok_or_else(|| bad("task state", format!("{number} is unknown")))
}
