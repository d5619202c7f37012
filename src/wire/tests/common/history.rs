//! Random events, traces and answers.

use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*};
use quorate_model::{Invalid, InvalidList, Revision, TaskEvent, TaskEventKind, TraceContext};
use quorate_state::{Receipt, Rejection};

use super::values::{moment, name, of, receipt, text};

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

fn refusal() -> impl Strategy<Value = Rejection> {
    let list = || vec((text(), text()), 0..4);
    let list =
        move || list().prop_map(|l| InvalidList(l.into_iter().map(|(p, r)| Invalid::new(p, r)).collect()));
    let types = || of(&["service", "batch"]);
    prop_oneof![
        (name(), name()).prop_map(|(namespace, name)| Rejection::JobNotFound { namespace, name }),
        (name(), name(), types(), types()).prop_map(|(namespace, name, stored, sent)| {
            Rejection::JobTypeChanged { namespace, name, stored, sent }
        }),
        (name(), name(), any::<(u64, u64)>(), text(), moment()).prop_map(
            |(namespace, name, (stored, sent), by, at)| Rejection::EtagMismatch {
                namespace,
                name,
                stored: Revision(stored),
                sent: Revision(sent),
                by: by.into(),
                at,
            }
        ),
        (name(), name()).prop_map(|(namespace, name)| Rejection::JobPurging { namespace, name }),
        (name(), name()).prop_map(|(namespace, name)| Rejection::NotScalable { namespace, name }),
        list().prop_map(Rejection::JobInvalid),
        list().prop_map(Rejection::Invalid),
        name().prop_map(|name| Rejection::NodeNameTaken { name }),
        Just(Rejection::AlreadyInitialised),
    ]
}

/// Any answer that is remembered.
pub(crate) fn answer() -> impl Strategy<Value = Result<Receipt, Rejection>> {
    prop_oneof![receipt().prop_map(Ok), refusal().prop_map(Err)]
}
