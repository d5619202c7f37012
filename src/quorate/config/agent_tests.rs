//! What becomes of files, environment and flags, and what is said about each mistake.

use super::*;

fn load_all(file: Option<&str>, environment: &[(&str, &str)], flags: &str) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let mut args = crate::cli::args::tests::agent_run(flags);
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
        args.config.push(path.to_string_lossy().into_owned());
    }
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let shim = ShimCommand { program: "quorate".into(), args: Vec::new() };
    load(&args, environment, None, shim).map_err(|problems| {
        problems
            .0
            .iter()
            .map(|one| format!("{}:{}: {}", one.line, one.column, one.message))
            .collect::<Vec<_>>()
            .join("\n")
    })
}

const FULL: &str = r#"
managers = ["127.0.0.1:7421", "127.0.0.1:7521"]
runtimes = ["process", "fake"]
orphan_grace = "5s"
logs = { max_size = "1MiB", max_files = 2 }

[node]
name = "n1"
data_dir = "/var/lib/quorate-agent"
labels = { zone = "a", rack = 7, "example.com/disk" = "ssd" }
reserved = { cpu = "100m", memory = "128MiB" }
capacity = { cpu = 4, memory = "8GiB" }

[pressure]
disk_used_percent = 80
disk_free = "4GiB"
"#;

#[test]
fn a_full_file_arrives() {
    let Loaded { config, log } = load_all(Some(FULL), &[], "").unwrap();
    assert_eq!((config.node.as_str(), config.managers.len()), ("n1", 2));
    assert_eq!(config.storage, Storage::Folder("/var/lib/quorate-agent".into()));
    let labels: Vec<String> = config.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["example.com/disk=ssd", "rack=7", "zone=a"]);
    assert_eq!(config.reserved, Resources { cpu_millis: 100, memory_bytes: 128 << 20 });
    assert_eq!(config.capacity, Some(Resources { cpu_millis: 4_000, memory_bytes: 8 << 30 }));
    assert_eq!(config.runtimes.wanted(), [RuntimeKind::Process, RuntimeKind::Fake]);
    assert_eq!(config.runtimes.process.unwrap().logs, LogLimits { file_bytes: 1 << 20, files: 2 });
    assert_eq!(log.identity, Identity::Node("n1".into()));
    assert_eq!(config.orphan_grace, std::time::Duration::from_secs(5));
    let pressure = Pressure { disk_used_percent: 80, disk_free_bytes: 4 << 30, memory_available_percent: 5 };
    assert_eq!(config.pressure, Some(pressure));
}

#[test]
fn the_file_that_is_shipped_is_legal() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/agent.toml");
    let shim = ShimCommand { program: "quorate".into(), args: Vec::new() };
    let args = crate::cli::args::tests::agent_run(&format!("-c {path}"));
    assert_eq!(load(&args, [], None, shim).unwrap().config.node.as_str(), "n1");
}

#[test]
fn flags_add_labels_and_override_the_rest() {
    let config = load_all(
        Some(FULL),
        &[("QUORATE_AGENT_NODE__LABELS", "zone=b,env=x"), ("QUORATE_AGENT_RUNTIMES", "docker")],
        "--label zone=c --label disk=hdd --managers a:1,b:2 --runtime docker,process",
    )
    .unwrap()
    .config;
    assert_eq!((config.labels["zone"].as_str(), config.labels["env"].as_str()), ("c", "x"));
    assert_eq!((config.labels["disk"].as_str(), config.labels["rack"].as_str()), ("hdd", "7"));
    assert_eq!(config.managers, ["a:1", "b:2"]);
    assert_eq!(config.runtimes.wanted(), [RuntimeKind::Docker, RuntimeKind::Process]);
}

#[test]
fn the_defaults_dial_the_loopback_and_offer_what_is_real() {
    let config = load_all(None, &[], "--name n1 --data-dir d").unwrap().config;
    assert_eq!(config.managers, ["127.0.0.1:7421"]);
    assert_eq!(config.runtimes.wanted(), [RuntimeKind::Docker, RuntimeKind::Process]);
    assert_eq!((config.reserved, config.capacity), (Resources::default(), None));
    assert_eq!((config.orphan_grace, config.pressure), (ORPHAN_GRACE, Some(Pressure::default())));
    assert_eq!(config.runtimes.docker.unwrap().auth_file, None);
    let simulated = load_all(None, &[], "--name n1 --data-dir d --runtime fake").unwrap().config;
    assert_eq!(simulated.pressure, None, "a simulated machine is never short of anything");
}

#[test]
fn each_mistake_says_where_it_comes_from_and_what_to_do() {
    let head = "node.name = \"n1\"\nnode.data_dir = \"d\"\n";
    let table: &[(&str, &str)] = &[
        ("runtime = [\"docker\"]", "3:1: unknown setting \"runtime\"; did you mean \"runtimes\"?"),
        ("runtimes = [\"podman\"]", "3:12: runtimes: \"podman\" is unknown; use docker, process or fake"),
        ("managers = 5", "3:12: managers: expected a list, found 5"),
        (
            "node.reserved.cpu = \"lots\"",
            "3:21: node.reserved.cpu: \"lots\" is no amount of CPU: write 500m, 2 or 0.5",
        ),
        ("node.capacity.cpu = 4", "3:21: node.capacity.cpu: give node.capacity.memory, too"),
        ("node.labels.zone = [\"a\"]", "3:20: node.labels.zone: expected a text, found a list"),
        ("logs.max_files = 0", "3:18: logs.max_files: expected a whole number from 1 to 1000, found 0"),
    ];
    for (text, expected) in table {
        let found = load_all(Some(&format!("{head}{text}\n")), &[], "").map(drop).unwrap_err();
        assert_eq!(found, *expected, "{text}");
    }
    let label = load_all(None, &[], "--name n1 --data-dir d --label zone").map(drop).unwrap_err();
    assert_eq!(label, "0:0: \"zone\" is not KEY=VALUE: write a=1,b=2");
}
