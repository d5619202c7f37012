//! The agents' protocol, spoken by hand.

use std::collections::BTreeMap;

use quorate_wire::{
    agent::{self as pb, agent_service_client::AgentServiceClient, session_request, session_response::Body},
    api, common,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    cluster::{Cluster, PATIENCE, channel, until},
    writes::{apply, service},
};

const RUNNING: u32 = 512;

/// An agent's end of a session.
pub(crate) struct Agent {
    pub(crate) say: mpsc::Sender<pb::SessionRequest>,
    hear: Streaming<pb::SessionResponse>,
}

pub(crate) fn hello(node: &str, agent: &str) -> pb::Hello {
    let facts = pb::NodeFacts {
        hostname: node.to_owned(),
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        agent_version: "test".to_owned(),
        runtimes: ["docker", "fake"].map(|name| (name.to_owned(), "1".to_owned())).into(),
        capacity: Some(common::Resources { cpu_millis: 4000, memory_bytes: 8 << 30 }),
        reserved: None,
        labels: BTreeMap::new(),
        conditions: BTreeMap::new(),
    };
    pb::Hello {
        node: node.to_owned(),
        agent_id: agent.to_owned(),
        incarnation: 1,
        facts: Some(facts),
        ..pb::Hello::default()
    }
}

impl Agent {
    pub(crate) async fn dial(cluster: &Cluster, manager: usize, hello: pb::Hello) -> Self {
        let mut client =
            AgentServiceClient::new(channel(&cluster.members[manager].addresses.agents.to_string()));
        let (say, said) = mpsc::channel(16);
        say.send(pb::SessionRequest { body: Some(session_request::Body::Hello(hello)) }).await.unwrap();
        let hear = client.session(ReceiverStream::new(said)).await.unwrap().into_inner();
        Self { say, hear }
    }

    pub(crate) async fn next(&mut self) -> Body {
        self.next_or_end().await.expect("the session ended")
    }

    pub(crate) async fn next_or_end(&mut self) -> Option<Body> {
        let message = tokio::time::timeout(PATIENCE, self.hear.message()).await.expect("no message");
        message.ok().flatten().map(|m| m.body.unwrap())
    }

    /// Welcome and the complete set.
    pub(crate) async fn opened(&mut self) -> (pb::Welcome, pb::AssignmentSet) {
        let Body::Welcome(welcome) = self.next().await else { panic!("no welcome") };
        let Body::Complete(set) = self.next().await else { panic!("no complete set") };
        (welcome, set)
    }

    pub(crate) async fn report(&self, task_id: u64, state: u32, seq: u64) {
        let status = pb::TaskStatus { task_id, state, seq, ..pb::TaskStatus::default() };
        let batch = pb::StatusBatch { statuses: vec![status] };
        self.say.send(pb::SessionRequest { body: Some(session_request::Body::Status(batch)) }).await.unwrap();
    }

    /// Reads increments until `count` tasks were assigned.
    pub(crate) async fn assigned(&mut self, mut sequence: u64, count: usize) -> (u64, Vec<pb::Assignment>) {
        let mut all = Vec::new();
        while all.len() < count {
            let Body::Increment(set) = self.next().await else { panic!("no increment") };
            assert_eq!(set.applies_to, sequence, "increments are chained");
            sequence = set.results_in;
            all.extend(set.assignments);
        }
        (sequence, all)
    }
}

async fn state_of(cluster: &Cluster, at: usize, task: u64) -> api::TaskState {
    let request = api::GetTaskRequest { id: format!("t{task}"), read: None };
    cluster.tasks(at).get_task(request).await.unwrap().into_inner().task.unwrap().state()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_redirects_and_the_leader_assigns() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let mut lost = Agent::dial(&cluster, follower, hello("n1", "a")).await;
    let Body::Redirect(redirect) = lost.next().await else { panic!("no redirect") };
    assert_eq!(redirect.leader_address, cluster.members[leader].addresses.agents.to_string());
    assert_eq!(redirect.managers.len(), 3);
    assert!(lost.next_or_end().await.is_none(), "a redirect ends the session");

    let mut agent = Agent::dial(&cluster, leader, hello("n1", "a")).await;
    let (welcome, complete) = agent.opened().await;
    assert!(complete.assignments.is_empty() && !welcome.cluster_id.is_empty());
    cluster.jobs(follower).apply_job(apply(service("web", 3))).await.unwrap();
    let (_, tasks) = agent.assigned(complete.results_in, 3).await;
    assert!(tasks.iter().all(|t| t.spec.is_some() && t.desired_state == RUNNING && t.job == "web"));

    agent.report(tasks[0].task_id, RUNNING, 1).await;
    let ack = loop {
        if let Body::Ack(ack) = agent.next().await {
            break ack;
        }
    };
    assert_eq!(ack.marks, [pb::StatusMark { task_id: tasks[0].task_id, seq: 1 }]);
    assert_eq!(
        state_of(&cluster, follower, tasks[0].task_id).await,
        api::TaskState::Running,
        "acked after commit"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_session_gets_the_complete_set_and_ends_the_old_one() {
    let cluster = Cluster::start(1).await;
    let mut first = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, complete) = first.opened().await;
    cluster.jobs(0).apply_job(apply(service("web", 2))).await.unwrap();
    let (_, tasks) = first.assigned(complete.results_in, 2).await;
    let mut second = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, complete) = second.opened().await;
    let ids = |set: &[pb::Assignment]| set.iter().map(|a| a.task_id).collect::<Vec<_>>();
    assert_eq!(ids(&complete.assignments), ids(&tasks));
    while first.next_or_end().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_with_a_reason() {
    let cluster = Cluster::start(1).await;
    let mut agent = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    agent.opened().await;
    let wrong_cluster = pb::Hello { cluster_id: "01JDZK00000000000000000000".to_owned(), ..hello("n2", "b") };
    let bad_name = hello("Not A Name", "b");
    let no_facts = pb::Hello { facts: None, ..hello("n2", "b") };
    for (hello, reason) in [
        (hello("n1", "somebody-else"), "NODE_NAME_TAKEN"),
        (wrong_cluster, "WRONG_CLUSTER"),
        (bad_name, "INVALID_FACTS"),
        (no_facts, "INVALID_FACTS"),
    ] {
        let mut refused = Agent::dial(&cluster, 0, hello).await;
        let Body::Refusal(refusal) = refused.next().await else { panic!("no refusal") };
        assert_eq!(refusal.reason, reason, "{}", refusal.message);
        assert!(refused.next_or_end().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_asks_for_a_taken_name_does_not_keep_its_node_alive() {
    let cluster = Cluster::start(1).await;
    let mut silent = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    silent.opened().await;
    until(
        "a stranger gets the name: the silent node is lost though strangers ask all the time",
        async || {
            let mut stranger = Agent::dial(&cluster, 0, hello("n1", "somebody-else")).await;
            match stranger.next().await {
                Body::Refusal(refusal) => {
                    assert_eq!(refusal.reason, "NODE_NAME_TAKEN", "{}", refusal.message);
                    None
                }
                Body::Welcome(_) => Some(()),
                other => panic!("unexpected answer {other:?}"),
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_goes_down_and_its_tasks_are_replaced() {
    let cluster = Cluster::start(1).await;
    let mut lost = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, complete) = lost.opened().await;
    cluster.jobs(0).apply_job(apply(service("web", 1))).await.unwrap();
    let (_, tasks) = lost.assigned(complete.results_in, 1).await;
    lost.report(tasks[0].task_id, RUNNING, 1).await;
    drop(lost);
    let mut other = Agent::dial(&cluster, 0, hello("n2", "b")).await;
    let (welcome, complete) = other.opened().await;
    let beat = {
        let say = other.say.clone();
        let every = welcome.heartbeat.unwrap();
        let every = std::time::Duration::new(every.seconds as u64, every.nanos as u32);
        async move {
            let mut tick = tokio::time::interval(every);
            loop {
                tick.tick().await;
                let heartbeat = session_request::Body::Heartbeat(pb::Heartbeat::default());
                let _gone = say.send(pb::SessionRequest { body: Some(heartbeat) }).await;
            }
        }
    };
    let replaced = async {
        let (_, tasks) = other.assigned(complete.results_in, 1).await;
        tasks[0].task_id
    };
    tokio::select! {
        () = beat => unreachable!(),
        id = replaced => assert_ne!(id, tasks[0].task_id),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_leader_moves_nothing() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut agent = Agent::dial(&cluster, leader, hello("n1", "a")).await;
    let (_, complete) = agent.opened().await;
    cluster.jobs(leader).apply_job(apply(service("web", 2))).await.unwrap();
    let (_, tasks) = agent.assigned(complete.results_in, 2).await;
    for task in &tasks {
        agent.report(task.task_id, RUNNING, 1).await;
        until("running", async || {
            (state_of(&cluster, leader, task.task_id).await == api::TaskState::Running).then_some(())
        })
        .await;
    }
    cluster.stop(leader).await;
    let next = until("another leader", async || {
        (0..3).find(|i| *i != leader && cluster.manager(*i).node().leadership().borrow().me)
    })
    .await;
    let mut agent = loop {
        let mut agent = Agent::dial(&cluster, next, hello("n1", "a")).await;
        match agent.next().await {
            Body::Welcome(_) => break agent,
            _ => tokio::task::yield_now().await,
        }
    };
    let Body::Complete(complete) = agent.next().await else { panic!("no complete set") };
    let ids = |set: &[pb::Assignment]| set.iter().map(|a| (a.task_id, a.desired_state)).collect::<Vec<_>>();
    assert_eq!(ids(&complete.assignments), ids(&tasks), "the same tasks, still desired");
    let list = api::ListTasksRequest { include_ended: true, ..api::ListTasksRequest::default() };
    let all = cluster.tasks(next).list_tasks(list).await.unwrap().into_inner().tasks;
    assert_eq!(all.len(), 2, "nothing was created or restarted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_lets_its_agents_go() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut agent = Agent::dial(&cluster, leader, hello("n1", "a")).await;
    agent.opened().await;
    for other in (0..3).filter(|i| *i != leader) {
        cluster.stop(other).await;
    }
    // Nobody else could tell it: a new leader may be elsewhere, and must not find the agent here.
    let Body::Redirect(redirect) = agent.next().await else { panic!("no redirect") };
    assert_eq!(redirect.leader_address, "", "it knows no leader");
    assert!(agent.next_or_end().await.is_none());
    assert!(!cluster.manager(leader).node().leadership().borrow().me);
}
