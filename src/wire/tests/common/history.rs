//! Random events and traces.

use std::sync::Arc;

use proptest::{option, prelude::*};
use quorate_model::{TaskEvent, TaskEventKind, TraceContext};

use super::values::{moment, of};

pub(crate) fn trace() -> impl Strategy<Value = Option<TraceContext>> {
    option::of((any::<([u8; 16], [u8; 8])>(), any::<u8>()).prop_map(
        |((mut trace_id, mut span_id), flags)| {
            // Never all zero.
            (trace_id[0], span_id[0]) = (trace_id[0] | 1, span_id[0] | 1);
            TraceContext { trace_id, span_id, flags }
        },
    ))
}

pub(crate) fn task_event() -> impl Strategy<Value = TaskEvent> {
    let detail = option::of("[a-z]{1,20}".prop_map(Arc::from));
    (of(&TaskEventKind::ALL), moment(), option::of(any::<i32>()), detail)
        .prop_map(|(kind, at, code, detail)| TaskEvent { kind, at, code, detail })
}
