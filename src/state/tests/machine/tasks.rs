//! Commands on tasks.

use std::sync::Arc;

use quorate_model::{
    Explanation, JobId, JobVersion, NodeId, NodeStatus, Port, Resources, Slot, TaskId, TaskState, TaskStatus,
};
use quorate_state::{
    Applied, Command, NewTasks, Receipt, Rejection, Report,
    lab::{Lab, with_image},
};

use crate::{changed, create, refusal, running, service};

fn assign(lab: &mut Lab, placements: Vec<(TaskId, NodeId)>) -> Applied {
    lab.apply(Command::AssignTasks { placements })
}

fn desire(lab: &mut Lab, desired: TaskState, task: TaskId) -> Applied {
    lab.apply(Command::SetDesired { desired, tasks: vec![task] })
}

fn says(lab: &mut Lab, node: NodeId, task: TaskId, state: TaskState, seq: u64) -> Applied {
    let status = TaskStatus { seq, ..TaskStatus::by_manager(state, lab.now) };
    lab.apply(Command::ReportStatuses { node, reports: vec![Report { task, status }] })
}

fn observed(lab: &Lab, task: TaskId) -> TaskState {
    lab.state.task(task).unwrap().status.state
}

#[test]
fn creating_twice_creates_once() {
    let (mut lab, job, _) = running();
    let first = create(&mut lab, job, 3);
    assert_eq!(first.outcome, Ok(Receipt::Tasks { first: TaskId(1), count: 2 }), "slot 0 has one already");
    assert_eq!(create(&mut lab, job, 3).outcome, Ok(Receipt::Tasks { first: TaskId(3), count: 0 }));
}

#[test]
fn a_newer_version_does_not_push_a_live_task_aside() {
    let (mut lab, job, task) = running();
    lab.job(with_image(service(1), "app:2")).unwrap();
    let none = Ok(Receipt::Tasks { first: TaskId(1), count: 0 });
    assert_eq!(create(&mut lab, job, 1).outcome, none, "it must be stopped first");
    desire(&mut lab, TaskState::Shutdown, task);
    assert_eq!(create(&mut lab, job, 1).outcome, Ok(Receipt::Tasks { first: TaskId(1), count: 1 }));
}

#[test]
fn tasks_are_created_for_active_jobs_and_known_versions_only() {
    let (mut lab, job, _) = running();
    let groups = vec![NewTasks { first: Slot(9), count: 1, attempt: 0, not_before: lab.now }];
    let of = |job, version| Command::CreateTasks { job, version, groups: groups.clone() };
    assert!(matches!(refusal(&mut lab, of(JobId(9), JobVersion(1))), Rejection::Gone { what: "job", .. }));
    assert!(matches!(refusal(&mut lab, of(job, JobVersion(9))), Rejection::Gone { what: "job version", .. }));
    let (namespace, name) = (crate::name("default"), crate::name("web"));
    lab.done(Command::DeleteJob { namespace, name, purge: false, expect: None }).unwrap();
    assert!(matches!(refusal(&mut lab, of(job, JobVersion(1))), Rejection::WrongJobStatus { .. }));
}

#[test]
fn a_placement_that_no_longer_fits_is_refused_alone() {
    let mut lab = Lab::new();
    let node = lab.node(1, Resources { cpu_millis: 250, memory_bytes: 1 << 30 }).unwrap();
    let job = lab.job(service(3)).unwrap();
    create(&mut lab, job, 3);
    let placements = [0, 1, 2, 77].map(|id| (TaskId(id), node)).into();
    assert_eq!(changed(&assign(&mut lab, placements)), (2, vec![TaskId(2), TaskId(77)]));
    assert_eq!(changed(&assign(&mut lab, vec![(TaskId(0), node)])), (0, vec![TaskId(0)]), "never moved");
    assert_eq!(changed(&assign(&mut lab, vec![(TaskId(2), NodeId(9))])), (0, vec![TaskId(2)]));
    lab.report(TaskId(0), TaskState::Failed).unwrap();
    lab.done(Command::SetNodeStatus { node, status: NodeStatus::Down, reason: String::new() }).unwrap();
    assert_eq!(changed(&assign(&mut lab, vec![(TaskId(2), node)])), (0, vec![TaskId(2)]), "the node is down");
}

#[test]
fn ports_and_bounds_per_node_are_checked_again() {
    let mut lab = Lab::new();
    let node = lab.node(1, Resources { cpu_millis: 9000, memory_bytes: 1 << 40 }).unwrap();
    let mut spec = service(2);
    spec.ports = [(crate::name("http"), Port { container: 80, host: Some(8080), udp: false })].into();
    let mut bounded = service(2);
    bounded.name = crate::name("bounded");
    bounded.placement.max_per_node = 1;
    for spec in [spec, bounded] {
        let job = lab.job(spec).unwrap();
        create(&mut lab, job, 2);
        let tasks: Vec<_> = lab.state.tasks_of(job).map(|t| t.id).collect();
        let placements = tasks.iter().map(|t| (*t, node)).collect();
        assert_eq!(changed(&assign(&mut lab, placements)), (1, vec![tasks[1]]));
    }
}

#[test]
fn observed_states_only_grow_and_terminal_ones_stay() {
    let (mut lab, _, task) = running();
    let node = NodeId(0);
    let seq = lab.state.task(task).unwrap().status.seq;
    for (state, seq, taken) in [
        (TaskState::Preparing, seq + 1, false),
        (TaskState::Running, seq, false),
        (TaskState::Running, seq + 1, true),
        (TaskState::Orphaned, seq + 2, false),
        (TaskState::Remove, seq + 2, false),
        (TaskState::Assigned, seq + 2, false),
        (TaskState::Failed, seq + 2, true),
        (TaskState::Rejected, seq + 3, false),
    ] {
        let (count, refused) = changed(&says(&mut lab, node, task, state, seq));
        assert_eq!((count == 1, refused.is_empty()), (taken, taken), "{state} with {seq}");
    }
    assert_eq!(observed(&lab, task), TaskState::Failed);
}

#[test]
fn only_the_task_s_own_node_is_heard() {
    let (mut lab, _, task) = running();
    let other = lab.node(2, Resources::default()).unwrap();
    assert_eq!(changed(&says(&mut lab, other, task, TaskState::Failed, 99)), (0, vec![task]));
    assert_eq!(changed(&says(&mut lab, other, TaskId(77), TaskState::Failed, 99)), (0, vec![TaskId(77)]));
    let status = TaskStatus::by_manager(TaskState::Failed, lab.now);
    let unknown = Command::ReportStatuses { node: NodeId(9), reports: vec![Report { task, status }] };
    assert!(matches!(refusal(&mut lab, unknown), Rejection::Gone { what: "node", .. }));
}

#[test]
fn a_long_reason_is_cut() {
    let (mut lab, _, task) = running();
    let status = TaskStatus {
        seq: 99,
        reason: Arc::from("x".repeat(5000)),
        ..TaskStatus::by_manager(TaskState::Failed, lab.now)
    };
    lab.done(Command::ReportStatuses { node: NodeId(0), reports: vec![Report { task, status }] }).unwrap();
    assert_eq!(lab.state.task(task).unwrap().status.reason.len(), 512);
}

#[test]
fn desired_states_only_grow() {
    let (mut lab, _, task) = running();
    assert_eq!(changed(&desire(&mut lab, TaskState::Shutdown, task)).0, 1);
    assert_eq!(changed(&desire(&mut lab, TaskState::Running, task)), (0, vec![task]));
    assert_eq!(changed(&desire(&mut lab, TaskState::Remove, task)).0, 1);
    assert_eq!(observed(&lab, task), TaskState::Running, "its agent has the word on that");
    let illegal = Command::SetDesired { desired: TaskState::Failed, tasks: vec![task] };
    assert!(matches!(refusal(&mut lab, illegal), Rejection::Invalid(_)));
}

#[test]
fn a_task_without_a_node_ends_when_it_is_not_wanted() {
    let (mut lab, job, _) = running();
    create(&mut lab, job, 2);
    desire(&mut lab, TaskState::Shutdown, TaskId(1));
    assert_eq!(observed(&lab, TaskId(1)), TaskState::Shutdown);
    assert_eq!(changed(&assign(&mut lab, vec![(TaskId(1), NodeId(0))])), (0, vec![TaskId(1)]));
}

#[test]
fn an_explanation_is_kept_until_the_task_is_placed() {
    let (mut lab, job, _) = running();
    create(&mut lab, job, 2);
    let why = Arc::new(Explanation { total: 3, reasons: vec![] });
    let explain = Command::ExplainTasks { groups: vec![(why.clone(), vec![TaskId(0), TaskId(1)])] };
    assert_eq!(changed(&lab.apply(explain.clone())), (1, vec![TaskId(0)]), "task 0 has a node");
    assert_eq!(changed(&lab.apply(explain)), (0, vec![TaskId(0), TaskId(1)]), "the same again is no change");
    assert_eq!(lab.state.task(TaskId(1)).unwrap().explanation, Some(why));
    assign(&mut lab, vec![(TaskId(1), NodeId(0))]);
    assert_eq!(lab.state.task(TaskId(1)).unwrap().explanation, None);
}

#[test]
fn only_tasks_of_down_nodes_become_orphans() {
    let (mut lab, job, task) = running();
    let orphan = Command::OrphanTasks { tasks: vec![task] };
    assert_eq!(changed(&lab.apply(orphan.clone())), (0, vec![task]));
    lab.done(Command::SetNodeStatus { node: NodeId(0), status: NodeStatus::Down, reason: "x".into() })
        .unwrap();
    assert_eq!(changed(&lab.apply(orphan)).0, 1);
    assert_eq!(
        (observed(&lab, task), lab.state.usage(NodeId(0))),
        (TaskState::Orphaned, Resources::default())
    );
    assert_eq!(lab.job_record(job).unwrap().failed, 1);
}

#[test]
fn only_ended_tasks_are_removed() {
    let (mut lab, _, task) = running();
    assert_eq!(
        changed(&lab.apply(Command::RemoveTasks { tasks: vec![task, TaskId(7)] })),
        (0, vec![task, TaskId(7)])
    );
    lab.report(task, TaskState::Failed).unwrap();
    assert_eq!(changed(&lab.apply(Command::RemoveTasks { tasks: vec![task] })).0, 1);
    assert_eq!(lab.state.task_count(), 0);
}

#[test]
fn ends_of_an_old_version_do_not_count() {
    let (mut lab, job, task) = running();
    lab.job(with_image(service(1), "app:2")).unwrap();
    lab.report(task, TaskState::Failed).unwrap();
    assert_eq!(lab.job_record(job).unwrap().failed, 0);
}

#[test]
fn a_restart_is_asked_of_what_has_a_node_and_is_wanted() {
    let (mut lab, job, task) = running();
    let restart = |task| Command::RestartTasks { tasks: vec![task] };
    assert_eq!(changed(&lab.apply(restart(task))), (1, vec![]));
    assert_eq!(changed(&lab.apply(restart(task))), (1, vec![]));
    assert_eq!(lab.state.task(task).unwrap().restarts_asked, 2);
    create(&mut lab, job, 2);
    assert_eq!(changed(&lab.apply(restart(TaskId(1)))), (0, vec![TaskId(1)]), "it has no node");
    desire(&mut lab, TaskState::Shutdown, task);
    assert_eq!(changed(&lab.apply(restart(task))), (0, vec![task]), "it is to stop");
    assert_eq!(changed(&lab.apply(restart(TaskId(77)))), (0, vec![TaskId(77)]));
}
