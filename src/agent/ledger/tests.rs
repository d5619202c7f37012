//! What the ledger keeps, and what it does with damage and a full disk.

use super::*;
use quorate_base::Timestamp;
use quorate_model::{ContainerSpec, JobVersion, Name, RestartPolicy, Slot, TaskState};
use quorate_wire::agent::Workload;

fn contents() -> Contents {
    let name = |text: &str| Name::parse("name", text).unwrap();
    let container = ContainerSpec { command: vec!["sleep".to_owned()], ..ContainerSpec::default() };
    let workload = Workload {
        containers: BTreeMap::from([(name("main"), container)]),
        volumes: BTreeMap::new(),
        ports: BTreeMap::new(),
        restart: RestartPolicy::default(),
    };
    let assigned = AssignedTask {
        id: TaskId(7),
        namespace: name("default"),
        job: name("web"),
        version: JobVersion(1),
        slot: Slot(0),
        desired: TaskState::Running,
        workload: Some(Arc::new(workload)),
        observed: TaskState::Assigned,
        observed_seq: 0,
        restarts_asked: 0,
        trace: None,
    };
    let mut record = Record::accepted(Timestamp::from_millis(5));
    record.status.seq = 9;
    record.status.reason = "exit 1, restarting in 2s (1 of 3)".into();
    record.retry_at = Some(Timestamp::from_millis(2_000));
    record.recent = vec![Timestamp::from_millis(1_000)];
    record.restarts_done = 2;
    Contents {
        cluster: "01ARYZ6S41TSV4RRFFQ69G5FAV".into(),
        fence: Fence { epoch: 1, term: 4 },
        managers: vec!["127.0.0.1:7421".to_owned()],
        tasks: BTreeMap::from([(TaskId(7), Held { assigned, epoch: Epoch(1), record })]),
    }
}

/// Lets `ledger` write until `change` is on disk or failed.
async fn write(ledger: &Ledger, change: Change) {
    let clock = Clock::system();
    tokio::select! {
        () = ledger.write(&clock, Rng::seeded(1)) => {}
        () = ledger.durable(change) => {}
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let (ledger, damage) = Ledger::open(path.clone());
    assert_eq!((damage, ledger.read().clone()), (None, Contents::default()));
    let ((), change) = ledger.change(|all| *all = contents());
    write(&ledger, change).await;
    assert_eq!(*Ledger::open(path).0.read(), contents());
}

#[tokio::test]
async fn a_flush_writes_what_the_writer_did_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let (ledger, _) = Ledger::open(path.clone());
    ledger.change(|all| *all = contents());
    ledger.flush().await;
    assert_eq!(*Ledger::open(path).0.read(), contents());
}

#[tokio::test]
async fn damage_is_named_and_the_agent_starts_without() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let good = file::encode(&contents());
    let mut flipped = good.clone();
    flipped[30] ^= 1;
    let table: [(&[u8], &str); 4] = [
        (&good[..10], "10 bytes are too few"),
        (&good[..good.len() - 3], "it should hold"),
        (&flipped, "its checksum is wrong"),
        (b"something else altogether", "it is no ledger"),
    ];
    for (bytes, reason) in table {
        std::fs::write(&path, bytes).unwrap();
        let (ledger, damage) = Ledger::open(path.clone());
        assert_eq!(*ledger.read(), Contents::default());
        let message = damage.unwrap().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_disk_is_told_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("ledger");
    let (ledger, _) = Ledger::open(path.clone());
    let ((), change) = ledger.change(|all| *all = contents());
    write(&ledger, change).await;
    assert_eq!(ledger.trouble().as_deref(), Some("No such file or directory"));
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let clock = Clock::system();
    let mut written = ledger.written.subscribe();
    tokio::select! {
        () = ledger.write(&clock, Rng::seeded(1)) => {}
        recovered = written.wait_for(|written| written.trouble.is_none()) => drop(recovered.unwrap()),
    }
    assert_eq!(*Ledger::open(path).0.read(), contents());
}

#[tokio::test]
async fn without_a_file_everything_is_durable_at_once() {
    let ledger = Ledger::in_memory();
    let ((), change) = ledger.change(|all| *all = contents());
    ledger.durable(change).await;
    ledger.flush().await;
    assert_eq!(ledger.trouble(), None);
}
