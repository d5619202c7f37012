//! Good files become the job they describe; each bad one becomes its own exact text.

use std::time::Duration;

use quorate_model::{JobKind, RestartCondition, RuntimeKind, Strategy, Volume};

use super::*;

fn source(name: &str, text: &str) -> Source {
    let format = if name.ends_with("toml") {
        Format::Toml
    } else if name.ends_with("json") {
        Format::Json
    } else {
        Format::Yaml
    };
    Source { name: name.into(), text: text.into(), format }
}

fn jobs(name: &str, text: &str) -> Vec<JobSpec> {
    read(&source(name, text), None).unwrap().into_iter().map(|job| job.spec).collect()
}

/// The one-line messages of all mistakes, in order: `line:column: message`.
fn mistakes(name: &str, text: &str) -> Vec<String> {
    let problems = read(&source(name, text), None).err().unwrap_or_default();
    problems.0.iter().map(|one| format!("{}:{}: {}", one.line, one.column, one.message)).collect()
}

const FULL: &str = r#"# A comment.
apiVersion: quorate/v1
name: web
namespace: shop
type: service
replicas: 6
priority: 60
labels: {team: checkout, tier: 1.10}
x-note: ignored
placement:
  constraints:
    - node.os == linux
    - node.labels.zone != c
  maxPerNode: 2
  strategy: binpack
restart: {condition: on-failure, attempts: 5, window: 1h, delay: 1s, maxDelay: 30s}
reschedule: {attempts: unlimited, delay: 2s, maxDelay: 1m}
ports:
  http: {container: 8080, publish: {mode: host, port: 80}}
  dns: {container: 53, protocol: udp}
volumes:
  cache: {type: tmpfs, size: 256MiB}
  assets: {type: volume, source: shop-assets, readOnly: true}
containers:
  app:
    runtime: docker
    image: registry.example/shop/web:1.27.3
    imagePull: {policy: always}
    command: ["/app/server"]
    args: ["--listen", ":8080"]
    user: 10001
    workdir: /app
    env: {LOG_LEVEL: info, DEBUG: false, VERSION: 1.10, EMPTY: ""}
    mounts:
      - {volume: cache, target: /var/cache/app}
      - {volume: assets, target: /srv/assets}
    resources:
      reserve: {cpu: 500m, memory: 256MiB}
      limit: {cpu: 2, memory: 512MiB, pids: 512}
    stop: {signal: SIGINT, grace: 20s}
"#;

#[test]
fn every_field_of_a_full_job_arrives() {
    let spec = jobs("web.yaml", FULL).remove(0);
    assert_eq!((spec.namespace.as_str(), spec.name.as_str(), spec.priority), ("shop", "web", 60));
    assert_eq!(spec.kind, JobKind::Service { replicas: 6 });
    assert_eq!(spec.labels["tier"], "1.10");
    assert_eq!(spec.placement.constraints.len(), 2);
    assert_eq!((spec.placement.max_per_node, spec.placement.strategy), (2, Some(Strategy::Binpack)));
    assert_eq!((spec.restart.condition, spec.restart.attempts), (RestartCondition::OnFailure, 5));
    assert_eq!(spec.restart.max_delay, Duration::from_secs(30));
    assert_eq!((spec.reschedule.attempts, spec.reschedule.delay), (None, Duration::from_secs(2)));
    assert_eq!((spec.ports["http"].container, spec.ports["http"].host), (8080, Some(80)));
    assert!(spec.ports["dns"].udp && spec.ports["dns"].host.is_none());
    assert_eq!(spec.volumes["cache"], Volume::Tmpfs { size_bytes: 256 << 20 });
    let app = &spec.containers["app"];
    assert_eq!((app.runtime, app.pull), (RuntimeKind::Docker, quorate_model::ImagePull::Always));
    assert_eq!((app.command.len(), app.args.len()), (1, 2));
    assert_eq!((app.user.as_deref(), app.workdir.as_deref()), (Some("10001"), Some("/app")));
    let env: Vec<_> = app.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["DEBUG=false", "EMPTY=", "LOG_LEVEL=info", "VERSION=1.10"]);
    assert!(!app.mounts[0].read_only && app.mounts[1].read_only);
    assert_eq!((app.reserve.cpu_millis, app.limit.cpu_millis, app.limit.pids), (500, 2000, 512));
    assert_eq!((app.stop.signal.as_str(), app.stop.grace), ("SIGINT", Duration::from_secs(20)));
}

#[test]
fn the_three_formats_and_the_short_form_mean_the_same() {
    let yaml =
        "apiVersion: quorate/v1\nname: web\nreplicas: 2\nimage: web:1\nports: {http: {container: 80}}\n";
    let toml = "apiVersion = 'quorate/v1'\nname = 'web'\nreplicas = 2\nimage = 'web:1'\n[ports]\nhttp = {container = 80}\n";
    let json = r#"{"apiVersion": "quorate/v1", "name": "web", "replicas": 2,
        "containers": {"app": {"image": "web:1"}}, "ports": {"http": {"container": 80}}}"#;
    let first = jobs("a.yaml", yaml);
    assert_eq!(first, jobs("a.toml", toml));
    assert_eq!(first, jobs("a.json", json));
    assert_eq!(first[0].namespace.as_str(), "default");
}

#[test]
fn a_file_may_hold_several_jobs_and_a_batch_restarts_on_failure_only() {
    let text = "apiVersion: quorate/v1\nname: a\nimage: a:1\n---\n\
                apiVersion: quorate/v1\nname: b\ntype: batch\ncompletions: 5\nparallelism: 2\nimage: b:1\n";
    let found = jobs("a.yaml", text);
    assert_eq!(found[0].kind, JobKind::Service { replicas: 1 });
    assert_eq!(found[1].kind, JobKind::Batch { completions: 5, parallelism: 2 });
    assert_eq!(found[1].restart.condition, RestartCondition::OnFailure);
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_with_their_lines() {
    let text =
        "apiVersion: quorate/v1\nname: web\nreplica: 3\nimage: web:1\nresources:\n  reserve: {cpu: lots}\n";
    let shown = read(&source("web.yaml", text), None).unwrap_err().to_string();
    assert_eq!(
        shown,
        "web.yaml:3:1: unknown field \"replica\"; did you mean \"replicas\"?\n    |\n  3 | replica: 3\n    | ^^^^^^^\n\
         web.yaml:6:18: resources.reserve.cpu: \"lots\" is no amount of CPU: write 500m, 2 or 0.5\n    |\n\
         \x20 6 |   reserve: {cpu: lots}\n    |                  ^^^^"
    );
}

/// What follows `apiVersion` and `name`, and what is said about it (the first line after them is line 3).
const BAD_FIELDS: &[(&str, &[&str])] = &[
    ("image: a\nreplicas: three", &["4:11: replicas: expected a whole number, found the text \"three\""]),
    ("image: a\nreplicas: -1", &["4:11: replicas: -1 is out of range: 0 to 1000000"]),
    ("image: a\nreplicas:", &["4:1: replicas has no value: give one or remove it"]),
    ("image: a\npriority: 101", &["4:11: priority: 101 is out of range: 1 to 100"]),
    ("image: a\ntype: servic", &["4:7: type: \"servic\" is unknown; did you mean \"service\"?"]),
    (
        "image: a\ntype: global",
        &["4:7: type: only service and batch are supported by this version of quorate"],
    ),
    (
        "image: a\ntype: batch\nreplicas: 2",
        &["5:1: replicas is for services: a batch has completions and parallelism"],
    ),
    ("image: a\nparallelism: 2", &["4:1: parallelism is for batches: say type: batch, or give replicas"]),
    (
        "image: a\nupdate: {parallelism: 2}",
        &["4:1: update is not supported by this version of quorate: remove it"],
    ),
    ("image: a\nhealth: {}", &["4:1: health is not supported by this version of quorate: remove it"]),
    ("image: a\nimage: b", &["4:1: image is given twice: remove one of them"]),
    ("image: a\nlabels: [x]", &["4:9: labels: expected a table, found a list"]),
    ("image: a\nlabels: {a: {b: c}}", &["4:10: labels.a: expected a text, found a table"]),
    (
        "image: a\nplacement: {constraints: [zone == a]}",
        &[
            "4:27: placement.constraints[0]: column 1 of \"zone == a\": unknown attribute \"zone\": there are \
               node.name, node.os, node.arch and node.labels.KEY",
        ],
    ),
    (
        "image: a\nplacement: {constraint: [node.os == a]}",
        &["4:13: unknown field \"placement.constraint\"; did you mean \"constraints\"?"],
    ),
    (
        "image: a\nplacement: {spread: []}",
        &["4:13: placement.spread is not supported by this version of quorate: remove it"],
    ),
    ("image: a\nrestart: {delay: 10}", &["4:18: restart.delay: 10 has no unit: write 10s or 10ms"]),
    (
        "image: a\nrestart: {delay: 10x}",
        &["4:18: restart.delay: duration \"10x\": unknown unit \"x\"; use one of d, h, m, s, ms"],
    ),
    (
        "image: a\nrestart: {condition: always}",
        &["4:22: restart.condition: \"always\" is unknown; use any or on-failure or never"],
    ),
    ("image: a\nrestart: {delay: 2m}", &["4:18: restart.delay: longer than restart.maxDelay"]),
    (
        "image: a\nreschedule: {attempts: many}",
        &["4:24: reschedule.attempts: expected a whole number or unlimited, found the text \"many\""],
    ),
    (
        "image: a\nports: {http: {publish: {port: 80}}}",
        &["4:9: ports.http.container is missing: which port does the container listen on?"],
    ),
    (
        "image: a\nports: {http: {container: 80, publish: {mode: ingress, port: 80}}}",
        &["4:47: ports.http.publish.mode: ingress is not supported by this version of quorate: use host"],
    ),
    (
        "image: a\nports: {http: {container: 80, publish: {mode: host}}}",
        &["4:31: ports.http.publish.port is missing: this version of quorate cannot choose one"],
    ),
    (
        "image: a\nports: {a: {container: 1, publish: {port: 80}}, b: {container: 2, publish: {port: 80}}}",
        &["4:83: ports.b.publish.port: 80 is also published by ports.a"],
    ),
    (
        "image: a\nports: {HTTP: {container: 80}}",
        &["4:9: ports.HTTP: 'H' at position 1 of \"HTTP\": only a-z, 0-9 and '-' are allowed"],
    ),
    ("image: a\nvolumes: {v: {source: /x}}", &["4:11: volumes.v.type is missing: bind, volume or tmpfs"]),
    (
        "image: a\nvolumes: {v: {type: bind, source: x}}",
        &["4:35: volumes.v.source: \"x\" must be an absolute path"],
    ),
    (
        "image: a\nvolumes: {v: {type: tmpfs, source: x}}",
        &["4:28: volumes.v.source does not go with this type of volume: remove it"],
    ),
    (
        "image: a\nmounts: [{volume: v, target: /x}]",
        &["4:19: containers.app.mounts[0].volume: no volume \"v\" in this job: add it under volumes"],
    ),
    ("image: a\nmounts: [{volume: v}]", &["4:10: mounts[0].target is missing"]),
    ("image: a\ncommand: run", &["4:10: command: expected a list, found the text \"run\""]),
    ("image: a\nargs: [-p, 80]", &["4:12: args[1]: expected a text, found 80: put it into quotes"]),
    ("image: a\nenv: {A: }", &["4:7: env.A: has no value: write \"\" for an empty text"]),
    ("image: 10", &["3:8: image: expected a text, found 10: put it into quotes"]),
    ("image: a b", &["3:8: containers.app.image: \"a b\" is no image reference"]),
    ("runtime: dcoker\nimage: a", &["3:10: runtime: \"dcoker\" is unknown; did you mean \"docker\"?"]),
    ("command: [x]", &["1:1: containers.app.image: required: the docker runtime needs an image"]),
    (
        "runtime: process\ncommand: [x]\nresources: {limit: {memory: 64MiB}}",
        &[
            "5:29: containers.app.resources.limit.memory: the process runtime cannot enforce this: remove it or use \
               docker",
        ],
    ),
    (
        "image: a\nstop: {signal: TERM}",
        &["4:16: containers.app.stop.signal: \"TERM\" is unknown: one of SIGTERM, \
             SIGINT, SIGQUIT, SIGHUP, SIGKILL, SIGUSR1, SIGUSR2, SIGWINCH"],
    ),
    (
        "image: a\nresources: {reserve: {cpu: 2}, limit: {cpu: 1}}",
        &[
            "4:28: containers.app.resources.reserve.cpu: reserves 2 but is limited to 1: raise limit.cpu or lower \
               reserve.cpu",
        ],
    ),
    (
        "image: a\nresources: {reserve: {memory: 1PiB}}",
        &["4:31: resources.reserve.memory: \"1PiB\" is no size: write 256MiB, 1.5GiB, 512MB or bytes"],
    ),
    (
        "image: a\nresources: {reserve: {cpu: 5000}}",
        &["4:28: containers.app.resources.reserve.cpu: 5000 is more than any node has (at most 1000)"],
    ),
    (
        "image: a\nresources: {limit: {cpu: 0}}",
        &["4:26: resources.limit.cpu: a limit of 0 lets nothing run: remove it for no limit"],
    ),
    (
        "image: a\ncontainers: {app: {image: b}}",
        &["3:1: image stands beside containers: move it into one of them, or use the short form alone"],
    ),
    ("containers: {}", &["3:1: containers is empty: a job needs one"]),
    (
        "containers: {a: {image: a}, b: {image: b}}",
        &["3:1: containers: 2 containers: this version runs one per task; make several jobs"],
    ),
    ("replicas: 1", &["1:1: this job runs nothing: give image, or containers"]),
    (
        "image: a\nzzz: 1",
        &["4:1: unknown field \"zzz\"; there are apiVersion, name, namespace, type, replicas, \
             completions, parallelism, priority, labels, placement, restart, reschedule, ports, volumes, containers, \
             runtime, image, imagePull, command, args, env, user, workdir, mounts, resources, stop"],
    ),
];

#[test]
fn each_bad_field_has_its_own_words() {
    for (body, expected) in BAD_FIELDS {
        let text = format!("apiVersion: quorate/v1\nname: web\n{body}\n");
        assert_eq!(mistakes("a.yaml", &text), *expected, "{body}");
    }
}

#[test]
fn a_broken_head_has_its_own_words() {
    let table: &[(&str, &str, &[&str])] = &[
        ("a.yaml", "", &["0:0: holds no job"]),
        ("a.yaml", "just text\n", &["1:1: expected a table, found the text \"just text\""]),
        (
            "a.yaml",
            "image: a\n",
            &[
                "1:1: apiVersion is missing: begin with apiVersion: quorate/v1",
                "1:1: name is missing: a job needs one, like name: web",
            ],
        ),
        (
            "a.yaml",
            "apiVersion: v1\nname: Web\nimage: a\n",
            &[
                "1:13: apiVersion: \"v1\" is unknown: this version reads quorate/v1",
                "2:7: name: 'W' at position 1 of \"Web\": only a-z, 0-9 and '-' are allowed",
            ],
        ),
        ("a.toml", "name = 'web\n", &["1:12: this is not TOML: invalid literal string, expected `'`"]),
        ("a.json", "{\"name\" 1}", &["1:9: this is not JSON: expected `:`"]),
    ];
    for (name, text, expected) in table {
        assert_eq!(mistakes(name, text), *expected, "{text}");
    }
}

#[test]
fn the_namespace_of_the_command_line_counts_and_must_not_contradict() {
    let shop: Name = "shop".parse().unwrap();
    let text = "apiVersion: quorate/v1\nname: web\nimage: a\n";
    assert_eq!(read(&source("a.yaml", text), Some(&shop)).unwrap()[0].spec.namespace, shop);
    let other = format!("namespace: dev\n{text}");
    let refused = read(&source("a.yaml", &other), Some(&shop)).unwrap_err().0.remove(0);
    assert_eq!(refused.message, "namespace: the file says dev, the command line says shop: make them agree");
}

#[test]
fn a_job_given_twice_and_a_refusal_by_the_server_point_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let text = "apiVersion: quorate/v1\nname: web\nimage: a\n";
    std::fs::write(path("a.yaml"), text).unwrap();
    std::fs::write(path("b.yaml"), text).unwrap();
    let twice = load(&[path("a.yaml"), path("b.yaml")], None, None).unwrap_err();
    assert_eq!(twice.0.len(), 1);
    assert_eq!(
        (twice.0[0].line, twice.0[0].message.as_str()),
        (2, format!("job default/web is given twice: also at {}:2", path("a.yaml")).as_str())
    );
    let one = load(&[path("a.yaml")], None, None).unwrap().remove(0);
    let problem = one.problem("containers.app.image", "no such registry");
    assert_eq!((problem.line, problem.column), (3, 8));
    assert_eq!(problem.message, "containers.app.image: no such registry");
}

#[test]
fn mistakes_of_all_files_come_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("a.yaml"), "name: [").unwrap();
    std::fs::write(path("b.yaml"), b"\xff").unwrap();
    let all = load(&[path("a.yaml"), path("b.yaml"), path("c.yaml")], None, None).unwrap_err();
    let files: Vec<_> = all.0.iter().map(|problem| problem.file.clone()).collect();
    assert_eq!(files, [path("a.yaml"), path("b.yaml"), path("c.yaml")]);
}

#[test]
fn the_examples_that_are_shipped_are_legal() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/jobs");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths: Vec<String> = names.map(|path| path.to_string_lossy().into_owned()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        assert_eq!(load(std::slice::from_ref(&path), None, None).unwrap().len(), 1, "{path}");
    }
}
