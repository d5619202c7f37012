//! The process runtime with real processes.

#![cfg(test)]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorate_agent::config::{LogLimits, ShimCommand};
use quorate_agent::runtime::process::ProcessRuntime;
use quorate_agent::runtime::{Runtime as _, Unit, Work};
use quorate_agent::step::{Cause, Exit, FaultClass, Seen};
use quorate_base::Clock;
use quorate_model::{Epoch, StopPolicy};
use support::{exit, group, instance, pid, processes, shell, shim, soon, unit, until};

async fn run(runtime: &ProcessRuntime, work: &Work) -> Seen {
    assert_eq!(runtime.create(work).await, Ok(Seen::Created));
    runtime.start(work).await.unwrap()
}

/// Runs `work` to its end.
async fn outcome(runtime: &ProcessRuntime, work: &Work) -> Exit {
    run(runtime, work).await;
    exit(soon("the end", runtime.wait(&work.unit)).await.unwrap())
}

/// What is seen when nothing is just starting or ending any more.
async fn look(runtime: &ProcessRuntime, work: &Work) -> Seen {
    soon("a look", async {
        loop {
            match runtime.inspect(&work.unit).await {
                Ok(seen) => return seen,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

fn output(root: &Path, work: &Work, stream: &str) -> String {
    let folder = root.join(work.unit.task.to_string()).join(work.unit.container.as_str());
    support::output(&folder, stream)
}

fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// The shim of a running process: its parent.
fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_process_runs_to_its_exit_code_and_its_output_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "echo out; echo err >&2; exit 3");
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Absent));
    assert_eq!(outcome(&runtime, &work).await, Exit { code: Some(3), ..Exit::default() });
    assert_eq!(output(root.path(), &work, "stdout"), "out\n");
    assert_eq!(output(root.path(), &work, "stderr"), "err\n");
    runtime.remove(&work.unit).await.unwrap();
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Absent));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing stays behind");
    runtime.remove(&work.unit).await.unwrap();
}

#[tokio::test]
async fn the_environment_holds_what_the_job_says_and_a_path() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let mut work = shell(1, "env");
    work.spec.env.insert("GREETING".to_owned(), "hello world".to_owned());
    assert_eq!(outcome(&runtime, &work).await.code, Some(0));
    let output = output(root.path(), &work, "stdout");
    // The shell itself adds these.
    let mut lines: Vec<_> =
        output.lines().filter(|line| !line.starts_with("PWD=") && !line.starts_with("_=")).collect();
    lines.retain(|line| !line.starts_with("SHLVL="));
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["GREETING=hello world", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    );
}

#[tokio::test]
async fn arguments_working_directory_and_user_are_honoured() {
    let (root, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runtime = processes(root.path());
    let mut work = shell(1, "pwd; id -u; echo \"$1\"");
    work.spec.args = vec!["sh".to_owned(), "an argument".to_owned()];
    work.spec.workdir = Some(place.path().to_string_lossy().into_owned());
    let me = nix::unistd::geteuid();
    let user = if me.is_root() { 4242 } else { me.as_raw() };
    work.spec.user = Some(user.to_string());
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(outcome(&runtime, &work).await.code, Some(0), "{}", output(root.path(), &work, "stderr"));
    let expected = format!("{}\n{user}\nan argument\n", place.path().display());
    assert_eq!(output(root.path(), &work, "stdout"), expected);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let mut work = shell(1, "true");
    work.spec.command = vec!["/bin/nope".to_owned()];
    runtime.create(&work).await.unwrap();
    let fault = runtime.start(&work).await.unwrap_err();
    assert_eq!(
        (fault.class, fault.message.as_str()),
        (FaultClass::Permanent, "cannot start /bin/nope: No such file or directory")
    );
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Created));
    let mut denied = shell(2, "true");
    let file = root.path().join("no-program");
    fs::write(&file, "").unwrap();
    denied.spec.command = vec![file.to_string_lossy().into_owned()];
    runtime.create(&denied).await.unwrap();
    let message = runtime.start(&denied).await.unwrap_err().message;
    assert_eq!(message, format!("cannot start {}: Permission denied", file.display()));
    let mut lost = shell(3, "true");
    lost.spec.workdir = Some("/no/such/place".to_owned());
    runtime.create(&lost).await.unwrap();
    let message = runtime.start(&lost).await.unwrap_err().message;
    assert_eq!(message, "cannot start sh: working directory /no/such/place: No such file or directory");
    let mut stranger = shell(4, "true");
    stranger.spec.user = Some("no-such-user".to_owned());
    let fault = runtime.create(&stranger).await.unwrap_err();
    assert_eq!(
        (fault.class, fault.message.as_str()),
        (FaultClass::Permanent, "no user \"no-such-user\" on this node")
    );
}

#[tokio::test]
async fn a_supervisor_that_is_missing_is_a_passing_fault() {
    let root = tempfile::tempdir().unwrap();
    let shim = ShimCommand { program: "/no/shim".into(), args: Vec::new() };
    let logs = LogLimits::default();
    let runtime = ProcessRuntime::new(root.path().to_owned(), shim, logs, Clock::system(), group());
    let work = shell(1, "true");
    runtime.create(&work).await.unwrap();
    let fault = runtime.start(&work).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transient);
    assert_eq!(fault.message, "cannot start the supervisor /no/shim: No such file or directory");
}

#[tokio::test]
async fn a_stop_asks_first_and_kills_what_does_not_listen() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let polite = shell(1, "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
    run(&runtime, &polite).await;
    until("the trap", || (output(root.path(), &polite, "stdout") == "ready\n").then_some(())).await;
    let seen = runtime.stop(&polite.unit, Some(&polite.spec.stop)).await.unwrap();
    assert_eq!(exit(seen).code, Some(7));

    let mut deaf = shell(2, "trap '' TERM; echo ready; while :; do sleep 0.01; done");
    deaf.spec.stop = StopPolicy { grace: Duration::from_millis(50), ..StopPolicy::default() };
    run(&runtime, &deaf).await;
    until("the trap", || (output(root.path(), &deaf, "stdout") == "ready\n").then_some(())).await;
    // Without a policy, as for a stranger: the one of its creation counts.
    let seen = runtime.stop(&deaf.unit, None).await.unwrap();
    let killed = exit(seen);
    assert_eq!(
        (killed.code, killed.detail.as_str(), killed.cause),
        (Some(137), "killed by SIGKILL", Cause::Signal(9))
    );
    let again = runtime.stop(&deaf.unit, None).await.unwrap();
    assert_eq!(exit(again).code, Some(137), "a second stop finds it stopped");
}

#[tokio::test]
async fn the_signal_is_the_jobs() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done");
    run(&runtime, &work).await;
    until("the trap", || (output(root.path(), &work, "stdout") == "ready\n").then_some(())).await;
    let policy = StopPolicy { signal: "SIGUSR1".to_owned(), ..work.spec.stop };
    let seen = runtime.stop(&work.unit, Some(&policy)).await.unwrap();
    assert_eq!(exit(seen).code, Some(9));
}

#[tokio::test]
async fn what_is_left_of_the_group_ends_with_its_leader() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "sleep 600 & echo $!; exit 0");
    assert_eq!(outcome(&runtime, &work).await.code, Some(0));
    let child: i32 = output(root.path(), &work, "stdout").trim().parse().unwrap();
    until("the child's end", || (!alive(child)).then_some(())).await;
}

#[tokio::test]
async fn a_start_of_what_runs_starts_nothing() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "exec sleep 600");
    let first = run(&runtime, &work).await;
    assert_eq!(runtime.create(&work).await.as_ref(), Ok(&first));
    assert_eq!(runtime.start(&work).await.as_ref(), Ok(&first));
    runtime.stop(&work.unit, None).await.unwrap();
    // After its end a start runs it anew.
    let second = runtime.start(&work).await.unwrap();
    assert_ne!(instance(&second), instance(&first));
    runtime.stop(&work.unit, None).await.unwrap();
}

#[tokio::test]
async fn starts_at_the_same_time_start_one() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (processes(root.path()), processes(root.path()));
    let work = shell(1, "echo $$; exec sleep 600");
    a.create(&work).await.unwrap();
    let (a_saw, b_saw) = tokio::join!(a.start(&work), b.start(&work));
    assert!(a_saw.is_ok() || b_saw.is_ok());
    let seen = look(&a, &work).await;
    for seen_by_one in [a_saw, b_saw].into_iter().flatten() {
        assert_eq!(instance(&seen_by_one), instance(&seen));
    }
    until("its output", || {
        (output(root.path(), &work, "stdout") == format!("{}\n", pid(&seen))).then_some(())
    })
    .await;
    a.stop(&work.unit, None).await.unwrap();
}

#[tokio::test]
async fn another_agent_finds_what_runs_and_learns_its_exit_code() {
    let root = tempfile::tempdir().unwrap();
    let work = shell(1, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    let started = {
        let runtime = processes(root.path());
        run(&runtime, &work).await
    };
    let next = processes(root.path());
    assert_eq!(next.list(&work.unit.owner).await, Ok(vec![work.unit.clone()]));
    assert_eq!(next.inspect(&work.unit).await.as_ref(), Ok(&started));
    until("the trap", || (output(root.path(), &work, "stdout") == "ready\n").then_some(())).await;
    kill(Pid::from_raw(pid(&started)), Signal::SIGTERM).unwrap();
    assert_eq!(exit(soon("the end", next.wait(&work.unit)).await.unwrap()).code, Some(5));
    let mut other = work.unit.owner.clone();
    other.node = support::name("n2");
    assert_eq!(next.list(&other).await, Ok(Vec::new()), "of another node");
}

#[tokio::test]
async fn a_killed_supervisor_ends_nothing_but_hides_the_exit_code() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "exec sleep 600");
    let started = run(&runtime, &work).await;
    kill(Pid::from_raw(parent(pid(&started))), Signal::SIGKILL).unwrap();
    until("the supervisor's end", || {
        (parent(pid(&started)) == 1 || !alive(parent(pid(&started)))).then_some(())
    })
    .await;
    assert_eq!(runtime.inspect(&work.unit).await.as_ref(), Ok(&started), "it runs on");
    kill(Pid::from_raw(pid(&started)), Signal::SIGKILL).unwrap();
    let exit = exit(soon("the end", runtime.wait(&work.unit)).await.unwrap());
    assert_eq!(
        exit,
        Exit { detail: "ended, exit code unknown: its supervisor was killed".to_owned(), ..Exit::default() }
    );
}

#[tokio::test]
async fn output_is_rotated_and_bounded() {
    let root = tempfile::tempdir().unwrap();
    let logs = LogLimits { file_bytes: 10_000, files: 3 };
    let runtime = ProcessRuntime::new(root.path().to_owned(), shim(), logs, Clock::system(), group());
    let work = shell(1, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
    assert_eq!(outcome(&runtime, &work).await.code, Some(0));
    let folder = root.path().join("t1/main");
    let sizes = ["output.log", "output.log.1", "output.log.2"]
        .map(|file| fs::metadata(folder.join(file)).unwrap().len());
    assert!(sizes.iter().all(|size| *size <= 10_000), "{sizes:?}");
    assert!(!folder.join("output.log.3").exists());
    assert!(output(root.path(), &work, "stdout").ends_with("line 19999\n"));
}

#[tokio::test]
async fn a_folder_of_an_earlier_epoch_is_not_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let runtime = processes(root.path());
    let work = shell(1, "exec sleep 600");
    run(&runtime, &work).await;
    let later = Work { unit: Unit { epoch: Epoch(2), ..unit(1) }, ..work.clone() };
    assert_eq!(runtime.inspect(&later.unit).await, Ok(Seen::Absent));
    let fault = runtime.create(&later).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transient);
    assert!(fault.message.contains("still belongs to quorate-q69g5fav-1-t1-main"), "{fault}");
    runtime.stop(&work.unit, None).await.unwrap();
    runtime.remove(&work.unit).await.unwrap();
    assert_eq!(runtime.create(&later).await, Ok(Seen::Created));
}
