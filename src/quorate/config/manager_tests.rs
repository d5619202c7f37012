//! What becomes of files, environment and flags, and what is said about each mistake.

use super::*;

fn args(line: &str) -> ManagerRunArgs {
    crate::cli::args::tests::manager_run(line)
}

/// Loads a file's text (if any) with an environment and flags.
fn load_all(file: Option<&str>, environment: &[(&str, &str)], flags: &str) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager.toml");
    let mut args = args(flags);
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
        args.config.push(path.to_string_lossy().into_owned());
    }
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let shown = |problems: Problems| {
        let place = |one: &crate::document::Problem| match one.line {
            0 => format!("{}: {}", one.file, one.message),
            _ => format!("{}:{}: {}", one.line, one.column, one.message),
        };
        problems.0.iter().map(place).collect::<Vec<_>>().join("\n")
    };
    load(&args, environment, None).map_err(shown)
}

const FULL: &str = r#"
node = { name = "m1", data_dir = "/var/lib/quorate" }
api = { listen = "0.0.0.0:8420", advertise = "10.0.0.1:8420" }
agents = { listen = "127.0.0.1:8421" }
admin = { listen = "127.0.0.1:8480" }
scheduler = { strategy = "binpack" }
nodes = { lease = "10s" }
log = { level = "info,quorate_raft=debug", format = "json" }
tls = { mode = "plaintext-anywhere" }

[raft]
listen = "127.0.0.1:8422"
heartbeat = "100ms"
election_timeout = ["600ms", "1200ms"]
snapshot_every = 10_000

[cluster.managers]
m1 = "127.0.0.1:8422"
m2 = "127.0.0.1:8522"
"#;

#[test]
fn a_full_file_arrives() {
    let Loaded { config, log } = load_all(Some(FULL), &[], "").unwrap();
    assert_eq!(
        (config.name.as_str(), config.data_dir.as_path()),
        ("m1", std::path::Path::new("/var/lib/quorate"))
    );
    assert_eq!(config.api.told(config.api.listen), "10.0.0.1:8420");
    assert_eq!(config.admin.listen.port(), 8480);
    assert_eq!(config.consensus.timers.election_max, Duration::from_millis(1_200));
    assert_eq!(config.consensus.snapshot_every, 10_000);
    assert_eq!(
        (config.settings.strategy, config.settings.node_lease),
        (Strategy::Binpack, Duration::from_secs(10))
    );
    assert_eq!(config.security, Security::PlaintextAnywhere);
    assert_eq!(config.managers.len(), 2);
    assert_eq!(log.filter, "info,quorate_raft=debug");
    assert_eq!(log.identity, Identity::Manager("m1".into()));
}

#[test]
fn the_file_that_is_shipped_is_legal() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/manager.toml");
    let config = load(&args(&format!("-c {path}")), [], None).unwrap().config;
    assert_eq!((config.name.as_str(), config.managers.len()), ("m1", 3));
}

#[test]
fn two_flags_are_enough_and_the_rest_has_its_defaults() {
    let config = load_all(None, &[], "--name m1 --data-dir d").unwrap().config;
    let ports = [config.api.listen, config.agents.listen, config.raft.listen, config.admin.listen];
    assert_eq!(ports, [7420, 7421, 7422, 7480].map(loopback));
    assert_eq!(config.managers, [("m1".parse().unwrap(), "127.0.0.1:7422".to_owned())].into());
    assert_eq!(config.consensus, RaftConfig::default());
    assert_eq!((config.settings, config.security), (Settings::default(), Security::default()));
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let environment = [
        ("QUORATE_MANAGER_RAFT__HEARTBEAT", "200ms"),
        ("QUORATE_MANAGER_API__LISTEN", "127.0.0.1:1"),
        ("PATH", "x"),
    ];
    let config = load_all(Some(FULL), &environment, "--api-listen 127.0.0.1:2").unwrap().config;
    assert_eq!(config.consensus.timers.heartbeat, Duration::from_millis(200));
    assert_eq!(config.api.listen, loopback(2));
    let environment = [
        ("QUORATE_MANAGER_RAFT__ELECTION_TIMEOUT", "1s, 2s"),
        ("QUORATE_MANAGER_RAFT__SNAPSHOT_EVERY", "5_000"),
        ("QUORATE_MANAGER_CLUSTER__MANAGERS", "m3=127.0.0.1:8622"),
    ];
    let config = load_all(Some(FULL), &environment, "").unwrap().config;
    assert_eq!(config.consensus.timers.election_min, Duration::from_secs(1));
    assert_eq!((config.consensus.snapshot_every, config.managers.len()), (5_000, 3));
}

#[test]
fn each_mistake_says_where_it_comes_from_and_what_to_do() {
    let head = "node = {name = \"m1\", data_dir = \"d\"}\n";
    let file: &[(&str, &str)] = &[
        ("apy = {listen = \"x\"}", "2:1: unknown setting \"apy\"; did you mean \"api\"?"),
        (
            "[raft]\nheartbaet = \"1s\"",
            "3:1: unknown setting \"raft.heartbaet\"; did you mean \"raft.heartbeat\"?",
        ),
        ("zzz = 1", "2:1: unknown setting \"zzz\"; see the commented files in config/"),
        ("raft = 5", "2:8: raft: expected a table, found 5"),
        (
            "api = {listen = \"7420\"}",
            "2:17: api.listen: \"7420\" is no address to listen on: write IP:PORT, like 127.0.0.1:7420",
        ),
        (
            "api = {listen = \"0.0.0.0:7420\"}",
            "2:17: api.listen: 0.0.0.0:7420 is every address of this machine: say with api.advertise which one others dial",
        ),
        (
            "api = {advertise = \"m1\"}",
            "2:20: api.advertise: \"m1\" is no address: write HOST:PORT, like 10.0.0.1:7420",
        ),
        ("raft = {heartbeat = 50}", "2:21: raft.heartbeat: 50 has no unit: write 50s or 50ms"),
        (
            "raft = {heartbeat = \"1s\", election_timeout = [\"150ms\", \"300ms\"]}",
            "2:21: raft.heartbeat: 1s must be above zero and at most half of the least election timeout (150ms)",
        ),
        (
            "raft = {election_timeout = [\"2s\", \"1s\"]}",
            "2:28: raft.election_timeout: expected the least and the most, like [\"150ms\", \"300ms\"]",
        ),
        (
            "scheduler = {strategy = \"pack\"}",
            "2:25: scheduler.strategy: \"pack\" is unknown; use spread or binpack",
        ),
        ("nodes = {lease = \"1ms\"}", "2:18: nodes.lease: must be 3s to 10m"),
        (
            "log = {format = \"xml\"}",
            "2:17: log.format: log format \"xml\" is unknown; use text, json or auto",
        ),
        (
            "tls = {mode = \"none\"}",
            "2:15: tls.mode: security \"none\" is unknown; use plaintext-loopback or plaintext-anywhere",
        ),
        (
            "[cluster.managers]\nm2 = \"127.0.0.1:1\"",
            "1:16: node.name: m1 is not among cluster.managers (m2): add it, or mend the name",
        ),
        (
            "[cluster.managers]\nm1 = \"127.0.0.1:1\"",
            "3:6: cluster.managers.m1: 127.0.0.1:1 is not where this manager is reached (127.0.0.1:7422): make it agree \
             with raft.listen or raft.advertise",
        ),
        (
            "[cluster.managers]\nM1 = \"a:1\"",
            "3:6: cluster.managers.M1: 'M' at position 1 of \"M1\": only a-z, 0-9 and '-' are allowed",
        ),
    ];
    for (text, expected) in file {
        let found = load_all(Some(&format!("{head}{text}\n")), &[], "").map(drop).unwrap_err();
        assert_eq!(found.lines().next(), Some(*expected), "{text}: {found}");
    }
}

#[test]
fn mistakes_of_the_environment_and_of_flags_name_them() {
    let flags = "--name m1 --data-dir d";
    let environment: &[(&str, &str, &str)] = &[
        (
            "QUORATE_MANAGER_RAFT__HEARTBET",
            "1s",
            "QUORATE_MANAGER_RAFT__HEARTBET: unknown setting \"raft.heartbet\"; did you mean \"raft.heartbeat\"?",
        ),
        (
            "QUORATE_MANAGER_RAFT__SNAPSHOT_EVERY",
            "many",
            "QUORATE_MANAGER_RAFT__SNAPSHOT_EVERY: raft.snapshot_every: expected a whole number from 100 to 100000000, \
             found the text \"many\"",
        ),
        (
            "QUORATE_MANAGER_CLUSTER__MANAGERS",
            "m1",
            "QUORATE_MANAGER_CLUSTER__MANAGERS: \"m1\" is not KEY=VALUE: write a=1,b=2",
        ),
    ];
    for (name, value, expected) in environment {
        assert_eq!(load_all(None, &[(name, value)], flags).unwrap_err(), *expected);
    }
    assert_eq!(
        load_all(None, &[], &format!("{flags} --raft-listen x")).unwrap_err(),
        "--raft-listen: raft.listen: \"x\" is no address to listen on: write IP:PORT, like 127.0.0.1:7420"
    );
    assert_eq!(
        load_all(None, &[], "--name M1").unwrap_err(),
        "--name: node.name: 'M' at position 1 of \"M1\": only a-z, 0-9 and '-' are allowed\n\
         configuration: node.data_dir is missing: give --data-dir, QUORATE_MANAGER_NODE__DATA_DIR, or node.data_dir in a \
         file (-c)"
    );
    let missing = load(&args("-c /nonexistent.toml --name m1 --data-dir d"), [], None).unwrap_err();
    assert_eq!(missing.to_string(), "/nonexistent.toml: there is no such file");
}
