//! No node is given more than it has: room, host ports, copies of a job.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::Resources;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("no node is over its capacity", "O5: no node above capacity in any applied state")
};

fn check(step: &Step<'_>) -> Verdict {
    let state = step.after;
    for node in state.nodes() {
        let mut sum = Resources::default();
        let mut ports = BTreeSet::new();
        let mut copies: BTreeMap<_, (u32, u32)> = BTreeMap::new();
        for task in state.tasks().filter(|t| t.node == Some(node.id) && t.holds_resources()) {
            let Some(spec) = state.spec_of(task) else { continue };
            sum = sum.plus(spec.reserve());
            for port in spec.host_ports() {
                ensure(ports.insert(port), || format!("port {} of {} is taken twice", port.0, node.name))?;
            }
            let (count, most) = copies.entry((task.job, task.version)).or_default();
            (*count, *most) = (*count + 1, spec.placement.max_per_node);
        }
        let room = node.facts.allocatable();
        ensure(sum.fits(room), || format!("{} reserves {sum} of {room}", node.name))?;
        let crowd = copies.iter().find(|(_, (count, most))| *most > 0 && count > most);
        ensure(crowd.is_none(), || format!("{} has {crowd:?} (job, version), (copies, most)", node.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quorate_model::{Job, JobId, JobSpec, NodeId, Port, TaskId};
    use quorate_state::{Command, Record};

    use super::*;
    use crate::invariants::bad::{Case, rebuilt, service};

    /// Two copies of a job on a node, whose specification is bent afterwards.
    fn verdict(bend: impl Fn(&mut JobSpec)) -> Verdict {
        let mut case = Case::new();
        case.lab.job(service(2)).unwrap();
        case.create(JobId(0), 0, 2);
        case.start(TaskId(0), NodeId(0));
        case.start(TaskId(1), NodeId(0));
        case.step(Command::AssignTasks { placements: vec![] }, INVARIANT.step, |bent| {
            bent.after.state = rebuilt(&bent.after.state, |record| match record {
                Record::Job(job) => {
                    let mut spec = (**job.spec().unwrap()).clone();
                    bend(&mut spec);
                    let specs = [(job.version, Arc::new(spec))].into();
                    Record::Job(Arc::new(Job { specs, ..(*job).clone() }))
                }
                other => other,
            });
        })
    }

    #[test]
    fn trips_on_room_ports_and_copies() {
        assert_eq!(verdict(|_| {}), Ok(()));
        let big = Resources { cpu_millis: 600, memory_bytes: 1 };
        let room = verdict(|spec| spec.containers.values_mut().for_each(|c| c.reserve = big));
        assert!(room.unwrap_err().contains("reserves 1.2 CPU"));
        let port = Port { container: 80, host: Some(8080), udp: false };
        let ports = verdict(|spec| spec.ports = [("http".parse().unwrap(), port.clone())].into());
        assert!(ports.unwrap_err().contains("port 8080"));
        assert!(verdict(|spec| spec.placement.max_per_node = 1).unwrap_err().contains("copies, most"));
    }
}
