use super::*;

use std::convert::Infallible;
use std::sync::mpsc;

use tokio::sync::oneshot;

const LONG: Duration = Duration::from_secs(3_600);

/// A root group and the failures that its hook saw.
fn group() -> (TaskGroup, Arc<Mutex<Vec<TaskFailure>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&seen);
    (TaskGroup::new("root", move |failure| lock(&hook).push(failure.clone())), seen)
}

async fn forever() -> Result<(), Infallible> {
    std::future::pending().await
}

#[tokio::test]
async fn a_critical_failure_stops_the_group_and_is_its_answer() {
    let (group, seen) = group();
    group.spawn(TaskKind::critical("steady"), forever());
    group.spawn(TaskKind::critical("disk"), async { Err("no space left") });
    let failure = group.failed().await;
    assert_eq!(failure.to_string(), "task root/disk failed: no space left");
    assert!(group.is_cancelled());
    assert!(group.shutdown(LONG).await.is_clean());
    assert_eq!((group.failure(), lock(&seen).as_slice()), (Some(failure.clone()), [failure].as_slice()));
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let (group, seen) = group();
    let what = 42;
    group.spawn(TaskKind::critical("loop"), async move {
        tokio::task::yield_now().await;
        if what == 42 {
            panic!("bad index {what}");
        }
        Ok::<_, Infallible>(())
    });
    let failure = group.failed().await;
    assert_eq!(failure.to_string(), "task root/loop panicked: bad index 42");
    assert!(failure.panicked && group.is_cancelled());
    group.shutdown(LONG).await;
    assert_eq!(lock(&seen).len(), 1);
}

#[tokio::test]
async fn a_best_effort_failure_reaches_the_hook_and_leaves_the_group_running() {
    let (group, seen) = group();
    group.spawn(TaskKind::best_effort("peer"), async { Err("connection reset") });
    group.spawn(TaskKind::best_effort("stream"), async { if true { panic!("oops") } else { Err("") } });
    while !group.running().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(!group.is_cancelled() && group.failure().is_none());
    let texts: Vec<_> = lock(&seen).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["task root/peer failed: connection reset", "task root/stream panicked: oops"]);
}

#[tokio::test]
async fn only_the_first_failure_is_the_answer() {
    let (group, seen) = group();
    let kind = TaskKind::critical("twin").drains();
    group.spawn(kind, async { Err("first") });
    group.spawn(kind, async { Err("second") });
    group.shutdown(LONG).await;
    assert_eq!(group.failed().await.reason, "first");
    assert_eq!(lock(&seen).len(), 2);
}

#[tokio::test]
async fn cancelling_goes_down_the_tree_and_not_up() {
    let (root, _) = group();
    let (left, right) = (root.child("left"), root.child("right"));
    let leaf = left.child("leaf");
    leaf.spawn(TaskKind::critical("bad"), async { Err("broken") });
    assert_eq!(leaf.failed().await.task, "root/left/leaf/bad");
    assert!(leaf.is_cancelled() && !left.is_cancelled());
    left.cancel();
    assert!(!root.is_cancelled() && !right.is_cancelled());
    root.cancel();
    right.cancelled().await;
    assert!(root.child("late").is_cancelled());
}

#[tokio::test]
async fn shutdown_waits_for_the_groups_below() {
    let (root, _) = group();
    let leaf = root.child("a").child("b");
    let (ended, end) = oneshot::channel();
    let watcher = leaf.clone();
    leaf.spawn(TaskKind::critical("drainer").drains(), async move {
        watcher.cancelled().await;
        tokio::task::yield_now().await;
        ended.send(()).map_err(|()| "nobody waits")
    });
    assert_eq!(root.running(), ["root/a/b/drainer"]);
    assert!(root.shutdown(LONG).await.is_clean());
    assert_eq!(end.await, Ok(()));
    assert!(root.running().is_empty());
}

#[tokio::test]
async fn a_cancelled_group_runs_nothing_new() {
    let (group, _) = group();
    group.cancel();
    let (ran, run) = oneshot::channel::<()>();
    group.spawn(TaskKind::critical("late"), async move { ran.send(()).map_err(|()| "nobody waits") });
    assert!(group.shutdown(LONG).await.is_clean());
    assert!(run.await.is_err(), "the future was dropped unpolled");
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_a_draining_task_is_aborted_and_named() {
    let (root, _) = group();
    root.child("slow").spawn(TaskKind::critical("drainer").drains(), forever());
    root.spawn(TaskKind::critical("polite"), forever());
    let report = root.shutdown(Duration::from_secs(5)).await;
    assert_eq!(report, ShutdownReport { aborted: vec!["root/slow/drainer".into()], stuck: vec![] });
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_does_not_end_is_named_as_stuck() {
    let (group, seen) = group();
    let (release, wait) = mpsc::sync_channel::<()>(0);
    let body = move || wait.recv().map_err(|_| "released");
    group.spawn_thread(TaskKind::critical("writer"), body).unwrap();
    let report = group.shutdown(Duration::from_secs(5)).await;
    let writer = vec!["root/writer".to_owned()];
    assert_eq!(report, ShutdownReport { aborted: writer.clone(), stuck: writer });
    drop(release);
    tokio::time::resume();
    assert_eq!(group.failed().await.to_string(), "task root/writer failed: released");
    assert!(group.shutdown(LONG).await.is_clean());
    assert_eq!(lock(&seen).len(), 1);
}

#[tokio::test]
async fn a_panicking_thread_is_a_failure() {
    let (group, _) = group();
    let body = || -> Result<(), Infallible> { panic!("bad page") };
    group.spawn_thread(TaskKind::critical("writer"), body).unwrap();
    assert_eq!(group.failed().await.to_string(), "task root/writer panicked: bad page");
}
