//! `PlanJob`: what applying a job would do.

use std::{collections::BTreeMap, sync::Arc};

use quorate_model::{Explanation, JobSpec, RuntimeKind, TaskId};
use quorate_orchestrator::{Rehearsal, SlotPlan, rehearse};
use quorate_state::State;
use quorate_wire::{
    api::{self as pb, etag, spec_diff},
    status::{ApiError, Reason},
};

use crate::api::{JobApi, jobs::merged};

/// Most slots of an answer.
const MOST_SLOTS: usize = 1000;

impl JobApi {
    /// Rehearses the submission on a copy of the state.
    pub(super) async fn plan(&self, request: pb::PlanJobRequest) -> Result<pb::PlanJobResponse, ApiError> {
        let view = self.core.view(request.read.as_ref()).await?;
        let (mut spec, _) = merged(&view, request.spec, &request.update_mask.unwrap_or_default().paths)?;
        let warnings = self.relays.pin(&view, &mut spec).await;
        let (meta, now) = (self.core.meta(&view), self.core.clock.now());
        // A rehearsal of a large job takes a while: off the async workers.
        let planned = tokio::task::spawn_blocking(move || {
            let spec = Arc::new(spec);
            let rehearsal = rehearse(&view, spec.clone(), now)?;
            answer(&view, &spec, &rehearsal)
        });
        let planned =
            planned.await.map_err(|_| ApiError::new(Reason::ShuttingDown, "the manager is stopping"))?;
        let mut planned = planned?;
        planned.warnings.splice(0..0, warnings);
        Ok(pb::PlanJobResponse { meta: Some(meta), ..planned })
    }
}

fn answer(view: &State, spec: &JobSpec, told: &Rehearsal) -> Result<pb::PlanJobResponse, ApiError> {
    let stored = view.job_named(&spec.namespace, &spec.name);
    let mut out = pb::PlanJobResponse {
        etag: stored.map_or_else(|| "0".to_owned(), |job| etag(job.edited)),
        diff: spec_diff(stored.and_then(|job| job.spec()).map(AsRef::as_ref), spec)?,
        version: stored.map_or(0, |job| job.version.0),
        new_version: told.state.job(told.job).map_or(0, |job| job.version.0),
        ..pb::PlanJobResponse::default()
    };
    let mut nodes: BTreeMap<String, pb::NodePlan> = BTreeMap::new();
    let mut failures: Vec<Arc<Explanation>> = Vec::new();
    for slot in &told.slots {
        let (action, node) = (action(slot), node(&told.state, slot.after));
        let new = matches!(action, pb::TaskAction::Create | pb::TaskAction::Replace);
        *match action {
            pb::TaskAction::Create => &mut out.creates,
            pb::TaskAction::Replace => &mut out.replaces,
            pb::TaskAction::Stop => &mut out.stops,
            pb::TaskAction::Keep | pb::TaskAction::Unspecified => &mut out.keeps,
        } += 1;
        if let Some(why) = slot.after.and_then(|id| told.state.task(id)).filter(|t| t.is_unplaced()) {
            out.unplaced += 1;
            failures.extend(why.explanation.clone().filter(|one| !failures.contains(one)));
        }
        if !node.is_empty() {
            let empty = || pb::NodePlan { node: node.clone(), ..pb::NodePlan::default() };
            let counts = nodes.entry(node.clone()).or_insert_with(empty);
            counts.tasks += 1;
            counts.placed += u32::from(new);
        }
        if out.tasks.len() < MOST_SLOTS {
            let task = slot.before.map(|id| id.to_string()).unwrap_or_default();
            out.tasks.push(pb::TaskPlan { slot: slot.slot.0, action: action.into(), task, node });
        }
    }
    out.nodes = nodes.into_values().collect();
    out.failures = failures.iter().map(|why| pb::failure(why)).collect();
    out.warnings = warnings(view, spec, told);
    Ok(out)
}

fn action(slot: &SlotPlan) -> pb::TaskAction {
    match (slot.before, slot.after) {
        (None, _) => pb::TaskAction::Create,
        (Some(_), None) => pb::TaskAction::Stop,
        (Some(before), Some(after)) if before == after => pb::TaskAction::Keep,
        (Some(_), Some(_)) => pb::TaskAction::Replace,
    }
}

fn node(state: &State, task: Option<TaskId>) -> String {
    let node = task.and_then(|id| state.task(id)).and_then(|task| task.node).and_then(|id| state.node(id));
    node.map(|node| node.name.to_string()).unwrap_or_default()
}

fn warnings(view: &State, spec: &JobSpec, told: &Rehearsal) -> Vec<String> {
    let mut warnings = Vec::new();
    if told.unchanged {
        warnings.push("nothing changes: the stored job is the same".to_owned());
    }
    let offered = |kind: RuntimeKind| view.nodes().any(|node| node.facts.runtimes.contains_key(&kind));
    let mut wanted: Vec<RuntimeKind> = spec.containers.values().map(|one| one.runtime).collect();
    wanted.sort_unstable();
    wanted.dedup();
    for kind in wanted.into_iter().filter(|kind| !offered(*kind)) {
        warnings.push(format!("no node has the runtime {}", kind.as_str()));
    }
    let job = told.state.job(told.job);
    let live = |id| told.state.task(id);
    let stuck = told.slots.iter().filter_map(|slot| slot.after.and_then(live));
    let stuck = stuck.filter(|task| job.is_some_and(|job| !job.is_current(task.version))).count();
    if stuck > 0 {
        warnings.push(format!(
            "the roll-out would stop: {stuck} tasks would stay on an older version, since no node takes their successors"
        ));
    }
    if !told.settled {
        warnings.push("the plan was cut off: it has more rounds than are looked at".to_owned());
    }
    warnings
}
