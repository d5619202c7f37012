//! Restarts, replacements, placement.

use std::time::Duration;

use quorate_model::{Attribute, Constraint, Placement, ReschedulePolicy, RestartPolicy};
use quorate_state::Halt;

use super::{
    enums::{number, word},
    pack::{all, millis},
    required,
};
use crate::generated::store::{self as pb, constraint::Attribute as Tested};

impl From<&RestartPolicy> for pb::RestartPolicy {
    fn from(value: &RestartPolicy) -> Self {
        Self {
            condition: number::<pb::RestartCondition, _>(value.condition),
            attempts: value.attempts,
            window_ms: millis(value.window),
            delay_ms: millis(value.delay),
            max_delay_ms: millis(value.max_delay),
        }
    }
}

impl TryFrom<pb::RestartPolicy> for RestartPolicy {
    type Error = Halt;

    fn try_from(value: pb::RestartPolicy) -> Result<Self, Halt> {
        Ok(Self {
            condition: word::<pb::RestartCondition, _>("restart condition", value.condition)?,
            attempts: value.attempts,
            window: Duration::from_millis(value.window_ms),
            delay: Duration::from_millis(value.delay_ms),
            max_delay: Duration::from_millis(value.max_delay_ms),
        })
    }
}

impl From<&ReschedulePolicy> for pb::ReschedulePolicy {
    fn from(value: &ReschedulePolicy) -> Self {
        Self {
            attempts: value.attempts,
            delay_ms: millis(value.delay),
            max_delay_ms: millis(value.max_delay),
        }
    }
}

impl From<pb::ReschedulePolicy> for ReschedulePolicy {
    fn from(value: pb::ReschedulePolicy) -> Self {
        Self {
            attempts: value.attempts,
            delay: Duration::from_millis(value.delay_ms),
            max_delay: Duration::from_millis(value.max_delay_ms),
        }
    }
}

impl From<&Constraint> for pb::Constraint {
    fn from(value: &Constraint) -> Self {
        let attribute = match &value.attribute {
            Attribute::Name => Tested::Name(true),
            Attribute::Os => Tested::Os(true),
            Attribute::Arch => Tested::Arch(true),
            Attribute::Label(key) => Tested::Label(key.clone()),
        };
        Self {
            attribute: Some(attribute),
            operator: number::<pb::Operator, _>(value.operator),
            value: value.value.clone(),
        }
    }
}

impl TryFrom<pb::Constraint> for Constraint {
    type Error = Halt;

    fn try_from(value: pb::Constraint) -> Result<Self, Halt> {
        let attribute = match required("attribute of a constraint", value.attribute)? {
            Tested::Name(_) => Attribute::Name,
            Tested::Os(_) => Attribute::Os,
            Tested::Arch(_) => Attribute::Arch,
            Tested::Label(key) => Attribute::Label(key),
        };
        let operator = word::<pb::Operator, _>("operator", value.operator)?;
        Ok(Self { attribute, operator, value: value.value })
    }
}

impl From<&Placement> for pb::Placement {
    fn from(value: &Placement) -> Self {
        Self {
            constraints: value.constraints.iter().map(Into::into).collect(),
            max_per_node: value.max_per_node,
            strategy: value.strategy.map_or(0, number::<pb::Strategy, _>),
        }
    }
}

impl TryFrom<pb::Placement> for Placement {
    type Error = Halt;

    fn try_from(value: pb::Placement) -> Result<Self, Halt> {
        Ok(Self {
            constraints: all(value.constraints)?,
            max_per_node: value.max_per_node,
            strategy: match value.strategy {
                0 => None,
                set => Some(word::<pb::Strategy, _>("strategy", set)?),
            },
        })
    }
}
