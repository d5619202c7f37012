//! Duties over a moment in which nothing can be written.

use std::{sync::Arc, time::Duration};

use quorate_base::{Rng, tasks::TaskGroup, time::Clock};
use quorate_pki::Security;
use quorate_raft::{Node, RaftConfig, Setup, Told};
use quorate_state::{Actor, Command, State};
use quorate_storage::{LogOptions, MemoryDisk, Storage};
use quorate_wire::{api, common};

use super::{controller, liveness::Liveness, members};
use crate::{
    core::Core,
    proposer::{Proposer, WriteError},
};

/// Longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Consensus of a single manager, which leads.
async fn alone(group: &TaskGroup) -> Core {
    let mut rng = Rng::seeded(1);
    let opened =
        Storage::open_memory(&MemoryDisk::new(), "m1", LogOptions::default(), &mut rng).expect("a store");
    // Nobody else dials it: the address is only a name.
    let addr = "127.0.0.1:1".to_owned();
    let managers = [("m1".to_owned(), addr.clone())].into();
    let (config, security) = (RaftConfig::default(), Security::PlaintextLoopback);
    let setup =
        Setup { opened, addr, told: Told::default(), managers, config, security: security.clone(), rng };
    let node = Node::start(setup, group).await.expect("a node");
    let mut leadership = node.leadership();
    leadership.wait_for(|l| l.me).await.expect("leadership");
    let clock = Clock::system();
    let proposer = Proposer::start(node.clone(), clock.clone(), group);
    Core { name: "m1".parse().expect("a name"), node, proposer, security, clock }
}

/// A service whose tasks the controller has to create.
fn service(replicas: u32) -> Command {
    let container = common::ContainerSpec {
        runtime: common::Runtime::Fake.into(),
        reserve: Some(common::Resources { cpu_millis: 10, memory_bytes: 1 << 20 }),
        ..common::ContainerSpec::default()
    };
    let spec = api::JobSpec {
        name: "web".to_owned(),
        kind: Some(api::job_spec::Kind::Service(api::ServiceSpec { replicas })),
        containers: [("app".to_owned(), container)].into(),
        ..api::JobSpec::default()
    };
    Command::ApplyJob { spec: Arc::new(api::accept_spec(Some(spec)).expect("a legal job")), expect: None }
}

/// Waits until the state is as wished.
async fn reached(core: &Core, wish: impl Fn(&State) -> bool) {
    let mut applied = core.node.applied();
    while !wish(&core.node.view()) {
        applied.changed().await.expect("consensus lives");
    }
}

#[tokio::test]
async fn duties_go_on_over_a_moment_in_which_the_leader_may_not_write() {
    let group = TaskGroup::new("test", |failure| eprintln!("{failure}"));
    let core = alone(&group).await;
    let term = core.node.leadership().borrow().term;
    for error in [WriteError::NotLeader, WriteError::Unknown, WriteError::Overloaded] {
        let replicas = u32::try_from(core.node.view().tasks().count() + 2).expect("few");
        let user = Actor::User(Arc::from("test"));
        core.proposer.submit(user, None, service(replicas), 100).await.expect("written");
        let core = Core { proposer: core.proposer.failing_once(error.clone(), &group), ..core.clone() };
        let duties = group.child("duties");
        members::start(&core, term, &duties);
        controller::start(&core, term, Arc::new(Liveness::new(core.clock.clone())), &duties);
        let done = reached(&core, |state| {
            state.tasks().count() == replicas as usize && state.managers().count() == 1
        });
        tokio::select! {
            failure = duties.failed() => panic!("a duty ended for {error}: {failure}"),
            done = tokio::time::timeout(PATIENCE, done) => done.expect("the duties write at last"),
        }
        duties.shutdown(PATIENCE).await;
    }
}
