//! Commands on managers and on the cluster as a whole.

use std::sync::Arc;

use quorate_base::id::ClusterId;
use quorate_model::{Epoch, Manager, RaftId, Revision, Settings};

use crate::{Change, Event, Object, Receipt, Rejection, State, tables::event};

pub(super) fn upsert_manager(
    state: &mut State,
    at: Revision,
    sent: &Manager,
    events: &mut Vec<Event>,
) -> Receipt {
    let known = state.manager(sent.id).cloned();
    let record = Manager { changed: known.as_ref().map_or(at, |m| m.changed), ..sent.clone() };
    if known.as_deref() == Some(&record) {
        return Receipt::Done;
    }
    let change = if known.is_some() { Change::Updated } else { Change::Created };
    let manager = state.put_manager(Manager { changed: at, ..record });
    events.push(event(at, change, Object::Manager(manager)));
    Receipt::Done
}

pub(super) fn remove_manager(
    state: &mut State,
    at: Revision,
    id: RaftId,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let Some(manager) = state.managers.remove(&id) else {
        return Err(Rejection::Gone { what: "manager", id: id.0 });
    };
    events.push(event(at, Change::Deleted, Object::Manager(manager)));
    Ok(Receipt::Done)
}

pub(super) fn update_settings(
    state: &mut State,
    at: Revision,
    settings: &Settings,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    settings.validate().map_err(Rejection::Invalid)?;
    if *state.meta.settings != *settings {
        state.meta.settings = Arc::new(settings.clone());
        events.push(event(at, Change::Updated, Object::Settings(state.meta.settings.clone())));
    }
    Ok(Receipt::Done)
}

pub(super) fn init(state: &mut State, cluster: ClusterId, epoch: Epoch) -> Result<Receipt, Rejection> {
    match state.meta.cluster {
        Some(known) if known == cluster && state.meta.epoch == epoch => Ok(Receipt::Done),
        Some(_) => Err(Rejection::AlreadyInitialised),
        None => {
            state.meta.cluster = Some(cluster);
            state.meta.epoch = epoch;
            Ok(Receipt::Done)
        }
    }
}
