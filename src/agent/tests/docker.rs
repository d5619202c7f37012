//! The Docker runtime with the real engine.

#![cfg(test)]

mod support;

use std::net::TcpListener;
use std::time::Duration;

use quorate_agent::config::DockerConfig;
use quorate_agent::runtime::docker::DockerRuntime;
use quorate_agent::runtime::{Runtime as _, Work};
use quorate_agent::step::{Cause, Exit, FaultClass, Seen};
use quorate_base::Clock;
use quorate_model::{ImagePull, Limits, Mount, Port, Resources, StopPolicy, Volume};
use support::engine::{Cluster, Registry, docker, engine};
use support::{exit, instance, name, soon, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn run(runtime: &DockerRuntime, work: &Work) -> Seen {
    runtime.pull(work).await.unwrap();
    assert_eq!(runtime.create(work).await, Ok(Seen::Created));
    runtime.start(work).await.unwrap()
}

/// Runs `work` to its end; its exit and its output.
async fn outcome(runtime: &DockerRuntime, work: &Work) -> (Exit, String) {
    let end = async {
        run(runtime, work).await;
        exit(soon("the end", runtime.wait(&work.unit)).await.unwrap())
    };
    let exit = tokio::select! {
        // As an agent does: it brings the engine's events.
        () = runtime.changed() => panic!("the engine ended"),
        exit = end => exit,
    };
    (exit, docker(&["logs", &work.unit.to_string()]))
}

async fn ready(work: &Work) {
    until("its output", || (docker(&["logs", &work.unit.to_string()]) == "ready").then_some(())).await;
}

#[tokio::test]
async fn the_engine_tells_its_version() {
    let version = engine().probe().await.unwrap();
    assert_eq!(version, docker(&["version", "--format", "{{.Server.Version}}"]));
}

#[tokio::test]
async fn a_container_runs_to_its_exit_code_and_is_removed() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let work = cluster.shell(1, "echo out; exit 3");
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Absent));
    let (exit, output) = outcome(&runtime, &work).await;
    assert_eq!((exit, output.as_str()), (Exit { code: Some(3), ..Exit::default() }, "out"));
    runtime.remove(&work.unit).await.unwrap();
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Absent));
    runtime.remove(&work.unit).await.unwrap();
    assert_eq!(runtime.start(&work).await, Ok(Seen::Absent));
}

#[tokio::test]
async fn what_the_job_says_is_what_the_container_has() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "from the node").unwrap();
    let script = "id -u; pwd; echo $GREETING; echo $0; cat /host/file; \
                  touch /host/new 2>/dev/null || echo read-only; touch /scratch/new && df -k /scratch | tail -n 1";
    let mut work = cluster.shell(1, script);
    work.spec.args = vec!["an argument".to_owned()];
    work.spec.env.insert("GREETING".to_owned(), "hello world".to_owned());
    work.spec.user = Some("65534".to_owned());
    work.spec.workdir = Some("/tmp".to_owned());
    let mount =
        |volume: &str, read_only| Mount { volume: name(volume), target: format!("/{volume}"), read_only };
    work.spec.mounts = vec![mount("host", true), mount("scratch", false)];
    work.volumes = [
        (name("host"), Volume::Bind { source: folder.path().to_string_lossy().into_owned() }),
        (name("scratch"), Volume::Tmpfs { size_bytes: 1 << 20 }),
    ]
    .into();
    work.spec.limit = Limits { cpu_millis: 500, memory_bytes: 64 << 20, pids: 50 };
    work.spec.reserve = Resources { cpu_millis: 250, memory_bytes: 0 };
    let (exit, output) = outcome(&runtime, &work).await;
    assert_eq!(exit.code, Some(0), "{output}");
    let (said, size) = output.rsplit_once('\n').unwrap();
    assert_eq!(said, "65534\n/tmp\nhello world\nan argument\nfrom the noderead-only");
    assert!(size.split_whitespace().any(|word| word == "1024"), "{size}");
    let id = work.unit.to_string();
    let format =
        "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.CpuShares}}";
    assert_eq!(docker(&["inspect", "--format", format, &id]), "500000000 67108864 50 256");
    let format = "{{index .Config.Labels \"quorate.job\"}} {{index .Config.Labels \"quorate.task\"}}";
    assert_eq!(docker(&["inspect", "--format", format, &id]), "web t1");
}

#[tokio::test]
async fn a_named_volume_outlives_its_container() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let volume = format!("quorate-test-{}", cluster.0.to_lowercase());
    let with_volume = |mut work: Work| {
        work.spec.mounts = vec![Mount { volume: name("data"), target: "/data".to_owned(), read_only: false }];
        work.volumes = [(name("data"), Volume::Named { source: volume.clone() })].into();
        work
    };
    let (first, second) =
        (with_volume(cluster.shell(1, "echo kept > /data/x")), with_volume(cluster.shell(2, "cat /data/x")));
    assert_eq!(outcome(&runtime, &first).await.0.code, Some(0));
    runtime.remove(&first.unit).await.unwrap();
    assert_eq!(outcome(&runtime, &second).await.1, "kept");
    runtime.remove(&second.unit).await.unwrap();
    docker(&["volume", "rm", &volume]);
}

#[tokio::test]
async fn a_published_port_answers_and_a_taken_one_is_a_passing_fault() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let host = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let publish = |mut work: Work| {
        work.ports = [(name("http"), Port { container: 80, host: Some(host), udp: false })].into();
        work
    };
    let mut server = publish(cluster.shell(1, ""));
    server.spec.command = ["httpd", "-f", "-p", "80", "-h", "/www"].map(str::to_owned).to_vec();
    run(&runtime, &server).await;
    let answer = soon("the server", async {
        loop {
            let mut answer = String::new();
            if let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", host)).await
                && stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await.is_ok()
                && stream.read_to_string(&mut answer).await.is_ok()
                && !answer.is_empty()
            {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    let second = publish(cluster.shell(2, "true"));
    runtime.create(&second).await.unwrap();
    let fault = runtime.start(&second).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transient);
    assert!(fault.message.starts_with("cannot start: host port "), "{fault}");
    assert!(fault.message.contains(&host.to_string()), "{fault}");
}

#[tokio::test]
async fn a_stop_asks_first_and_kills_what_does_not_listen() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let mut polite = cluster.shell(1, "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done");
    polite.spec.stop = StopPolicy { signal: "SIGINT".to_owned(), grace: Duration::from_secs(30) };
    run(&runtime, &polite).await;
    ready(&polite).await;
    // Without a policy, as for a stranger: the one of its creation counts.
    assert_eq!(exit(runtime.stop(&polite.unit, None).await.unwrap()).code, Some(7));
    let mut deaf = cluster.shell(2, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
    deaf.spec.stop.grace = Duration::from_millis(50);
    run(&runtime, &deaf).await;
    ready(&deaf).await;
    let seen = runtime.stop(&deaf.unit, Some(&deaf.spec.stop)).await.unwrap();
    let killed = exit(seen);
    assert_eq!(
        (killed.code, killed.detail.as_str(), killed.cause),
        (Some(137), "killed by SIGKILL", Cause::Signal(9))
    );
    assert_eq!(exit(runtime.stop(&deaf.unit, None).await.unwrap()).code, Some(137));
}

#[tokio::test]
async fn another_agent_finds_what_runs_and_learns_its_exit_code() {
    let cluster = Cluster::new();
    let work = cluster.shell(1, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done");
    let started = run(&engine(), &work).await;
    assert_eq!(instance(&started), docker(&["inspect", "--format", "{{.Id}}", &work.unit.to_string()]));
    let next = engine();
    assert_eq!(next.list(&cluster.owner()).await, Ok(vec![work.unit.clone()]));
    assert_eq!(next.inspect(&work.unit).await.as_ref(), Ok(&started));
    assert_eq!(next.create(&work).await.as_ref(), Ok(&started), "already created");
    assert_eq!(next.start(&work).await.as_ref(), Ok(&started), "already started");
    ready(&work).await;
    docker(&["kill", "--signal", "TERM", &work.unit.to_string()]);
    assert_eq!(exit(soon("the end", next.wait(&work.unit)).await.unwrap()).code, Some(5));
    let mut other = cluster.owner();
    other.node = name("n2");
    assert_eq!(next.list(&other).await, Ok(Vec::new()), "of another node");
    // Started anew in place: the same container, with a new beginning.
    let again = next.start(&work).await.unwrap();
    assert_eq!(instance(&again), instance(&started));
    assert_ne!(again, started);
}

#[tokio::test]
async fn lack_of_memory_is_named() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let mut work = cluster.shell(1, "");
    work.spec.command =
        ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"].map(str::to_owned).to_vec();
    work.spec.limit.memory_bytes = 8 << 20;
    let (exit, output) = outcome(&runtime, &work).await;
    assert_eq!(exit.detail, "killed for lack of memory: raise its memory limit", "{exit:?} {output}");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let mut work = cluster.shell(1, "");
    work.spec.command = vec!["/bin/nope".to_owned()];
    runtime.create(&work).await.unwrap();
    let fault = runtime.start(&work).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Permanent);
    assert_eq!(fault.message, "cannot start: \"/bin/nope\": stat /bin/nope: no such file or directory");
    assert_eq!(runtime.inspect(&work.unit).await, Ok(Seen::Created));
    let mut lost = cluster.shell(2, "true");
    lost.spec.mounts = vec![Mount { volume: name("host"), target: "/host".to_owned(), read_only: true }];
    lost.volumes = [(name("host"), Volume::Bind { source: "/no/such/place".to_owned() })].into();
    let fault = runtime.create(&lost).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Permanent);
    assert!(fault.message.contains("/no/such/place"), "{fault}");
}

#[tokio::test]
async fn an_image_is_pulled_when_it_is_missing() {
    let (cluster, runtime, registry) = (Cluster::new(), engine(), Registry::start().await);
    let mut work = cluster.shell(1, "");
    work.spec.image = Some(registry.image.clone());
    let fault = runtime.pull(&work).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Permanent);
    assert_eq!(
        fault.message,
        format!("image {} is not on this node, and it must not be pulled", registry.image)
    );
    let fault = runtime.create(&work).await.unwrap_err();
    assert_eq!(
        (fault.class, fault.message),
        (FaultClass::Permanent, format!("image {} is not on this node", registry.image))
    );
    for pull in [ImagePull::IfMissing, ImagePull::IfMissing, ImagePull::Always, ImagePull::Never] {
        work.spec.pull = pull;
        soon("the pull", runtime.pull(&work)).await.unwrap();
    }
    assert_eq!(runtime.create(&work).await, Ok(Seen::Created));
    runtime.remove(&work.unit).await.unwrap();
    docker(&["rmi", &registry.image]);
}

#[tokio::test]
async fn an_image_that_cannot_be_had_says_why() {
    let (cluster, runtime, registry) = (Cluster::new(), engine(), Registry::start().await);
    let mut work = cluster.shell(1, "");
    work.spec.pull = ImagePull::IfMissing;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let table = [
        (format!("{}/things/none:2", registry.address), FaultClass::Permanent, "does not exist"),
        (format!("{nobody}/things:1"), FaultClass::Transient, "cannot reach the registry of image"),
        ("UPPER:1".to_owned(), FaultClass::Permanent, "is no image reference"),
    ];
    for (image, class, text) in table {
        work.spec.image = Some(image);
        let fault = soon("the pull", runtime.pull(&work)).await.unwrap_err();
        assert_eq!(fault.class, class, "{fault}");
        assert!(fault.message.contains(text), "{fault}");
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_unavailable() {
    let config = DockerConfig { socket: Some("/no/such/docker.sock".into()), ..DockerConfig::default() };
    let runtime = DockerRuntime::new(config, Clock::system());
    let work = support::shell(1, "true");
    for fault in [
        runtime.probe().await.unwrap_err(),
        runtime.inspect(&work.unit).await.unwrap_err(),
        runtime.pull(&work).await.unwrap_err(),
        runtime.start(&work).await.unwrap_err(),
    ] {
        assert_eq!(fault.class, FaultClass::Unavailable);
        assert!(fault.message.starts_with("the Docker engine does not answer: "), "{fault}");
    }
}
