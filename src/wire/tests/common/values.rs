//! Random values of every type that is stored or sent. All of them are values that the model can hold after
//! conversion from outside: whole milliseconds, no empty optional texts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::history::{answer, task_event, trace};
use proptest::{collection::btree_map, collection::vec, option, prelude::*};
use quorate_base::{
    id::{ClusterId, RequestId},
    time::Timestamp,
};
use quorate_model::{
    Attribute, ClusterVersion, Constraint, ContainerSpec, Epoch, Explanation, Filter, ImagePull, Job, JobId,
    JobKind, JobSpec, JobStatus, JobVersion, Limits, Manager, Mount, Name, Node, NodeCondition, NodeFacts,
    NodeId, NodeStatus, Operator, Placement, Port, RaftId, Reason, ReschedulePolicy, Resources,
    RestartCondition, RestartPolicy, Revision, RuntimeKind, Settings, Slot, StopPolicy,
    Strategy as Spreading, Task, TaskId, TaskState, TaskStatus, Term, Volume,
};
use quorate_state::{
    Actor, Command, Envelope, Meta, NewTasks, Position, Receipt, Record, Report, Request, RequestKey,
    RequestRecord,
};

/// Any of a list.
pub(crate) fn of<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(all.to_vec())
}

/// A legal name.
pub(crate) fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?".prop_map(|text| text.parse().unwrap())
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    "[ -~äß€😀]{0,12}"
}

fn filled() -> impl Strategy<Value = String> {
    "[!-~ä]{1,12}"
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-zA-Z0-9./_-]{1,8}", "[ -~]{0,8}", 0..4)
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![0_u64..100_000, any::<u32>().prop_map(u64::from)].prop_map(Duration::from_millis)
}

pub(crate) fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![Just(0), 1_700_000_000_000_u64..1_900_000_000_000, any::<u64>()]
        .prop_map(Timestamp::from_millis)
}

fn resources() -> impl Strategy<Value = Resources> {
    any::<(u64, u64)>().prop_map(|(cpu_millis, memory_bytes)| Resources { cpu_millis, memory_bytes })
}

fn task_id() -> impl Strategy<Value = TaskId> {
    prop_oneof![0_u64..1000, any::<u64>()].prop_map(TaskId)
}

fn volume() -> impl Strategy<Value = Volume> {
    prop_oneof![
        text().prop_map(|source| Volume::Bind { source }),
        text().prop_map(|source| Volume::Named { source }),
        any::<u64>().prop_map(|size_bytes| Volume::Tmpfs { size_bytes }),
    ]
}

fn port() -> impl Strategy<Value = Port> {
    (any::<u16>(), option::of(1_u16..), any::<bool>()).prop_map(|(container, host, udp)| Port {
        container,
        host,
        udp,
    })
}

fn mount() -> impl Strategy<Value = Mount> {
    (name(), text(), any::<bool>()).prop_map(|(volume, target, read_only)| Mount {
        volume,
        target,
        read_only,
    })
}

fn container() -> impl Strategy<Value = ContainerSpec> {
    let program = (
        of(&RuntimeKind::ALL),
        (option::of(filled()), option::of(filled())),
        of(&[ImagePull::IfMissing, ImagePull::Always, ImagePull::Never]),
        vec(text(), 0..3),
        vec(text(), 0..3),
        texts(),
    );
    let place = (option::of(filled()), option::of(filled()), vec(mount(), 0..3));
    let bounds = (resources(), any::<(u64, u64, u64)>(), filled(), span());
    (program, place, bounds).prop_map(|(program, place, (reserve, limit, signal, grace))| {
        let (runtime, (image, digest), pull, command, args, env) = program;
        let (user, workdir, mounts) = place;
        let limit = Limits { cpu_millis: limit.0, memory_bytes: limit.1, pids: limit.2 };
        let stop = StopPolicy { signal, grace };
        ContainerSpec {
            runtime,
            image,
            digest,
            pull,
            command,
            args,
            env,
            user,
            workdir,
            mounts,
            reserve,
            limit,
            stop,
        }
    })
}

fn constraint() -> impl Strategy<Value = Constraint> {
    let attribute = prop_oneof![
        Just(Attribute::Name),
        Just(Attribute::Os),
        Just(Attribute::Arch),
        "[a-zA-Z0-9./_-]{1,12}".prop_map(Attribute::Label),
    ];
    (attribute, of(&[Operator::Equal, Operator::NotEqual]), "[ -<>-~]{1,12}")
        .prop_map(|(attribute, operator, value)| Constraint { attribute, operator, value })
}

fn placement() -> impl Strategy<Value = Placement> {
    (vec(constraint(), 0..4), any::<u32>(), option::of(of(&[Spreading::Spread, Spreading::Binpack])))
        .prop_map(|(constraints, max_per_node, strategy)| Placement { constraints, max_per_node, strategy })
}

fn restart() -> impl Strategy<Value = RestartPolicy> {
    let condition = of(&[RestartCondition::Any, RestartCondition::OnFailure, RestartCondition::Never]);
    (condition, any::<u32>(), span(), span(), span()).prop_map(
        |(condition, attempts, window, delay, max_delay)| RestartPolicy {
            condition,
            attempts,
            window,
            delay,
            max_delay,
        },
    )
}

fn reschedule() -> impl Strategy<Value = ReschedulePolicy> {
    (option::of(any::<u32>()), span(), span()).prop_map(|(attempts, delay, max_delay)| ReschedulePolicy {
        attempts,
        delay,
        max_delay,
    })
}

/// A specification that conversions can hold; it need not be valid.
pub(crate) fn job_spec() -> impl Strategy<Value = JobSpec> {
    let kind = prop_oneof![
        any::<u32>().prop_map(|replicas| JobKind::Service { replicas }),
        any::<(u32, u32)>()
            .prop_map(|(completions, parallelism)| JobKind::Batch { completions, parallelism }),
    ];
    let head = (name(), name(), kind, 1_u8.., texts());
    let parts = (btree_map(name(), port(), 0..3), btree_map(name(), volume(), 0..3));
    let containers = btree_map(name(), container(), 0..3);
    (head, placement(), restart(), reschedule(), parts, containers).prop_map(
        |(head, placement, restart, reschedule, (ports, volumes), containers)| {
            let (namespace, name, kind, priority, labels) = head;
            JobSpec {
                namespace,
                name,
                kind,
                priority,
                labels,
                placement,
                restart,
                reschedule,
                ports,
                volumes,
                containers,
            }
        },
    )
}

fn job() -> impl Strategy<Value = Job> {
    use JobStatus::{Active, Complete, Failed, Purging, Stopped};
    let names = (any::<u32>(), name(), name());
    let versions = (any::<(u32, u32)>(), btree_map(any::<u32>(), job_spec(), 0..3));
    let status = (of(&[Active, Complete, Failed, Stopped, Purging]), any::<(u32, u32)>());
    let times = (any::<(u64, u64, u64)>(), moment(), moment());
    let edit = (text().prop_map(Arc::from), moment(), trace());
    (names, versions, status, times, edit).prop_map(
        |(names, (version, specs), (status, ends), (revisions, created_at, changed_at), edit)| {
            let (id, namespace, name) = names;
            let (edited_by, edited_at, trace) = edit;
            Job {
                id: JobId(id),
                namespace,
                name,
                version: JobVersion(version.0),
                same_since: JobVersion(version.1),
                specs: specs.into_iter().map(|(v, spec)| (JobVersion(v), Arc::new(spec))).collect(),
                status,
                succeeded: ends.0,
                failed: ends.1,
                created: Revision(revisions.0),
                edited: Revision(revisions.1),
                edited_by,
                edited_at,
                trace,
                created_at,
                changed_at,
                changed: Revision(revisions.2),
            }
        },
    )
}

fn task_status(states: &[TaskState]) -> impl Strategy<Value = TaskStatus> + use<> {
    let head = (of(states), any::<u64>(), moment(), option::of(moment()));
    let events = vec(task_event(), 0..4);
    (head, option::of(any::<i32>()), any::<u32>(), text(), text(), events).prop_map(
        |((state, seq, at, running_since), exit_code, restarts, instance, reason, events)| TaskStatus {
            state,
            seq,
            at,
            running_since,
            exit_code,
            restarts,
            instance: instance.into(),
            reason: reason.into(),
            events: events.into(),
        },
    )
}

/// What an agent may report.
pub(crate) fn report() -> impl Strategy<Value = Report> {
    let legal: Vec<TaskState> = TaskState::ALL.into_iter().filter(|s| s.may_be_reported()).collect();
    (task_id(), task_status(&legal)).prop_map(|(task, status)| Report { task, status })
}

fn explanation() -> impl Strategy<Value = Explanation> {
    use Filter::{Constraint, Cpu, MaxPerNode, Memory, Port, Pressure, Ready, Runtime};
    let filter = of(&[Ready, Runtime, Constraint, Cpu, Memory, Port, MaxPerNode, Pressure]);
    let reason =
        (filter, any::<u32>(), text()).prop_map(|(filter, nodes, detail)| Reason { filter, nodes, detail });
    (any::<u32>(), vec(reason, 0..4)).prop_map(|(total, reasons)| Explanation { total, reasons })
}

fn task() -> impl Strategy<Value = Task> {
    let ids = (task_id(), any::<(u32, u32, u32, u32)>(), option::of(any::<u32>()));
    let state = (of(&TaskState::ALL), any::<u32>(), moment(), task_status(&TaskState::ALL));
    let times = (any::<(u64, u64)>(), moment());
    (ids, state, option::of(explanation()), times).prop_map(
        |((id, numbers, node), state, explanation, (revisions, created_at))| {
            let (desired, restarts_asked, not_before, status) = state;
            Task {
                id,
                job: JobId(numbers.0),
                version: JobVersion(numbers.1),
                slot: Slot(numbers.2),
                attempt: numbers.3,
                node: node.map(NodeId),
                desired,
                restarts_asked,
                not_before,
                status,
                explanation: explanation.map(Arc::new),
                created: Revision(revisions.0),
                created_at,
                changed: Revision(revisions.1),
            }
        },
    )
}

/// What an agent may say of its machine.
pub(crate) fn facts() -> impl Strategy<Value = NodeFacts> {
    let runtimes = btree_map(of(&RuntimeKind::ALL), text(), 0..3);
    let conditions = btree_map(of(&NodeCondition::ALL), text(), 0..2);
    ((text(), text(), text(), text()), texts(), runtimes, resources(), resources(), conditions).prop_map(
        |((hostname, os, arch, agent_version), labels, runtimes, capacity, reserved, conditions)| NodeFacts {
            hostname,
            os,
            arch,
            agent_version,
            labels,
            runtimes,
            capacity,
            reserved,
            conditions,
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let head = (any::<u32>(), name(), text(), facts());
    let status = (of(&[NodeStatus::Ready, NodeStatus::Down]), text(), any::<bool>(), moment());
    (head, status, any::<(u64, u64)>()).prop_map(
        |((id, name, agent, facts), (status, reason, eligible, status_since), revisions)| Node {
            id: NodeId(id),
            name,
            agent,
            facts,
            status,
            reason,
            eligible,
            status_since,
            created: Revision(revisions.0),
            changed: Revision(revisions.1),
        },
    )
}

fn manager() -> impl Strategy<Value = Manager> {
    (any::<(u64, u32, u64)>(), name(), (text(), text(), text(), text())).prop_map(
        |((id, can_follow, changed), name, (api_addr, agent_addr, raft_addr, binary_version))| Manager {
            id: RaftId(id),
            name,
            api_addr,
            agent_addr,
            raft_addr,
            binary_version,
            can_follow: ClusterVersion(can_follow),
            changed: Revision(changed),
        },
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    (of(&[Spreading::Spread, Spreading::Binpack]), span(), span(), any::<(u32, u32)>()).prop_map(
        |(strategy, node_lease, orphan_after, (task_history, version))| Settings {
            strategy,
            node_lease,
            orphan_after,
            task_history,
            version: ClusterVersion(version),
        },
    )
}

fn actor() -> impl Strategy<Value = Actor> {
    prop_oneof![
        text().prop_map(|principal| Actor::User(principal.into())),
        name().prop_map(Actor::Manager),
        name().prop_map(Actor::Agent),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    ("[!-~]{1,64}", any::<u64>())
        .prop_map(|(id, fingerprint)| Request { id: RequestId::new(&id).unwrap(), fingerprint })
}

pub(crate) fn receipt() -> impl Strategy<Value = Receipt> {
    prop_oneof![
        Just(Receipt::Done),
        any::<(u32, u32, bool, bool)>().prop_map(|(id, version, created, unchanged)| Receipt::Job {
            id: JobId(id),
            version: JobVersion(version),
            created,
            unchanged
        }),
        (task_id(), any::<u32>()).prop_map(|(first, count)| Receipt::Tasks { first, count }),
        (any::<u32>(), vec(task_id(), 0..5))
            .prop_map(|(changed, refused)| Receipt::Changed { changed, refused }),
        any::<u32>().prop_map(|id| Receipt::Node { id: NodeId(id) }),
    ]
}

fn edit() -> impl Strategy<Value = Command> {
    let expect = || option::of(any::<u64>().prop_map(Revision));
    let status = of(&[JobStatus::Complete, JobStatus::Failed]);
    prop_oneof![
        (job_spec().prop_map(Arc::new), expect())
            .prop_map(|(spec, expect)| Command::ApplyJob { spec, expect }),
        (name(), name(), any::<u32>(), expect()).prop_map(|(namespace, name, replicas, expect)| {
            Command::ScaleJob { namespace, name, replicas, expect }
        }),
        (name(), name(), any::<bool>(), expect()).prop_map(|(namespace, name, purge, expect)| {
            Command::DeleteJob { namespace, name, purge, expect }
        }),
        (any::<u32>(), any::<u32>(), status).prop_map(|(job, version, status)| Command::SetJobStatus {
            job: JobId(job),
            version: JobVersion(version),
            status
        }),
        any::<u32>().prop_map(|job| Command::ForgetJob { job: JobId(job) }),
    ]
}

fn tasks() -> impl Strategy<Value = Command> {
    let ids = || vec(task_id(), 0..8);
    let run = (any::<(u32, u32, u32)>(), moment()).prop_map(|((first, count, attempt), not_before)| {
        NewTasks { first: Slot(first), count, attempt, not_before }
    });
    let placement = (task_id(), any::<u32>().prop_map(NodeId));
    let group = (explanation().prop_map(Arc::new), ids());
    prop_oneof![
        (any::<(u32, u32)>(), vec(run, 0..4)).prop_map(|((job, version), groups)| Command::CreateTasks {
            job: JobId(job),
            version: JobVersion(version),
            groups
        }),
        vec(placement, 0..8).prop_map(|placements| Command::AssignTasks { placements }),
        (of(&TaskState::ALL), ids()).prop_map(|(desired, tasks)| Command::SetDesired { desired, tasks }),
        vec(group, 0..3).prop_map(|groups| Command::ExplainTasks { groups }),
        (any::<u32>(), vec(report(), 0..3))
            .prop_map(|(node, reports)| Command::ReportStatuses { node: NodeId(node), reports }),
        ids().prop_map(|tasks| Command::OrphanTasks { tasks }),
        ids().prop_map(|tasks| Command::RemoveTasks { tasks }),
        ids().prop_map(|tasks| Command::RestartTasks { tasks }),
    ]
}

fn member() -> impl Strategy<Value = Command> {
    let status = of(&[NodeStatus::Ready, NodeStatus::Down]);
    prop_oneof![
        (name(), text(), facts().prop_map(Arc::new)).prop_map(|(name, agent, facts)| Command::RegisterNode {
            name,
            agent,
            facts
        }),
        (any::<u32>(), status, text()).prop_map(|(node, status, reason)| Command::SetNodeStatus {
            node: NodeId(node),
            status,
            reason
        }),
        manager().prop_map(|manager| Command::UpsertManager { manager }),
        any::<u64>().prop_map(|id| Command::RemoveManager { id: RaftId(id) }),
        settings().prop_map(|settings| Command::UpdateSettings { settings }),
        any::<(u128, u64)>().prop_map(|(cluster, epoch)| Command::InitCluster {
            cluster: ClusterId::from_u128(cluster),
            epoch: Epoch(epoch)
        }),
    ]
}

/// Any command with any stamp.
pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let command = prop_oneof![edit(), tasks(), member()];
    let fence = option::of(any::<u64>().prop_map(Term));
    (moment(), fence, actor(), option::of(request()), trace(), command).prop_map(
        |(proposed_at, fence, actor, request, trace, command)| Envelope {
            proposed_at,
            fence,
            actor,
            request,
            trace,
            command,
        },
    )
}

fn meta() -> impl Strategy<Value = Meta> {
    let cluster = option::of(any::<u128>().prop_map(ClusterId::from_u128));
    (cluster, settings(), moment(), any::<(u64, u64, u64)>(), any::<(u32, u32, u64, u64)>()).prop_map(
        |(cluster, settings, now, (epoch, term, index), next)| Meta {
            cluster,
            epoch: Epoch(epoch),
            settings: Arc::new(settings),
            applied: Position { term: Term(term), index: Revision(index) },
            now,
            next_job: next.0,
            next_node: next.1,
            next_task: next.2,
            next_request: next.3,
        },
    )
}

/// Any record of an image.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    let answered = (actor(), request(), any::<(u64, u64)>(), moment(), answer()).prop_map(
        |(actor, request, (order, revision), at, answer)| RequestRecord {
            key: RequestKey { actor, id: request.id },
            order,
            fingerprint: request.fingerprint,
            revision: Revision(revision),
            at,
            answer,
        },
    );
    prop_oneof![
        meta().prop_map(Record::Meta),
        manager().prop_map(|manager| Record::Manager(Arc::new(manager))),
        node().prop_map(|node| Record::Node(Arc::new(node))),
        job().prop_map(|job| Record::Job(Arc::new(job))),
        task().prop_map(|task| Record::Task(Arc::new(task))),
        answered.prop_map(|request| Record::Request(Arc::new(request))),
    ]
}
