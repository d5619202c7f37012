//! From a task's container to the engine's words, and back from its labels.

use std::collections::HashMap;
use std::sync::Arc;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountTmpfsOptions, MountType, PortBinding,
    PortMap,
};
use quorate_model::{Epoch, JobVersion, Name, Port, Slot, Volume};

use super::image;
use crate::config::LogLimits;
use crate::runtime::{Owner, Unit, Work};

/// The least weight that the engine takes.
const LEAST_SHARES: u64 = 2;

/// What to create.
pub(super) fn body(work: &Work, logs: LogLimits) -> ContainerCreateBody {
    let spec = &work.spec;
    let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
    ContainerCreateBody {
        image: spec.image.is_some().then(|| image::reference(spec)),
        entrypoint: some(&spec.command),
        cmd: some(&spec.args),
        env: Some(spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect()),
        user: spec.user.clone(),
        working_dir: spec.workdir.clone(),
        labels: Some(labels(&work.unit)),
        stop_signal: Some(spec.stop.signal.clone()),
        stop_timeout: i64::try_from(spec.stop.grace.as_secs()).ok(),
        exposed_ports: Some(work.ports.values().map(port_key).collect()),
        host_config: Some(host_config(work, logs)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(work: &Work, logs: LogLimits) -> HostConfig {
    let (limit, reserve) = (work.spec.limit, work.spec.reserve);
    // 0 means none, to the engine as well, but absent is clearer.
    let amount = |value: u64| (value > 0).then(|| i64::try_from(value).unwrap_or(i64::MAX));
    let shares = (reserve.cpu_millis.saturating_mul(1_024) / 1_000).max(LEAST_SHARES);
    HostConfig {
        nano_cpus: amount(limit.cpu_millis.saturating_mul(1_000_000)),
        memory: amount(limit.memory_bytes),
        pids_limit: amount(limit.pids),
        // A reservation is a share of the processor when it is short, as in other orchestrators.
        cpu_shares: (reserve.cpu_millis > 0).then_some(shares).and_then(amount),
        port_bindings: Some(port_bindings(work)),
        mounts: Some(mounts(work)),
        log_config: Some(log_config(logs)),
        ..HostConfig::default()
    }
}

fn port_key(port: &Port) -> String {
    format!("{}/{}", port.container, if port.udp { "udp" } else { "tcp" })
}

fn port_bindings(work: &Work) -> PortMap {
    let mut bindings = PortMap::new();
    for port in work.ports.values() {
        let Some(host) = port.host else { continue };
        let binding = PortBinding { host_ip: None, host_port: Some(host.to_string()) };
        bindings.entry(port_key(port)).or_default().get_or_insert_default().push(binding);
    }
    bindings
}

fn mounts(work: &Work) -> Vec<Mount> {
    let mounts = work.spec.mounts.iter().filter_map(|mount| Some((mount, work.volumes.get(&mount.volume)?)));
    let mounts = mounts.map(|(mount, volume)| {
        let (typ, source, tmpfs_options) = match volume {
            Volume::Bind { source } => (MountType::BIND, Some(source.clone()), None),
            Volume::Named { source } => (MountType::VOLUME, Some(source.clone()), None),
            Volume::Tmpfs { size_bytes } => {
                let size_bytes = i64::try_from(*size_bytes).ok().filter(|size| *size > 0);
                (
                    MountType::TMPFS,
                    None,
                    Some(MountTmpfsOptions { size_bytes, ..MountTmpfsOptions::default() }),
                )
            }
        };
        Mount {
            typ: Some(typ),
            source,
            target: Some(mount.target.clone()),
            read_only: Some(mount.read_only),
            tmpfs_options,
            ..Mount::default()
        }
    });
    mounts.collect()
}

/// Without bounds the output of one container would fill the node's disk.
fn log_config(logs: LogLimits) -> HostConfigLogConfig {
    let config = [("max-size", logs.file_bytes.to_string()), ("max-file", logs.files.to_string())];
    HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some(config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
    }
}

/// The labels by which all containers of a node are found, as the engine's filters take them.
pub(super) fn owner_labels(owner: &Owner) -> Vec<String> {
    vec![format!("quorate.cluster={}", owner.cluster), format!("quorate.node={}", owner.node)]
}

fn labels(unit: &Unit) -> HashMap<String, String> {
    let labels = [
        ("quorate.cluster", unit.owner.cluster.to_string()),
        ("quorate.node", unit.owner.node.to_string()),
        ("quorate.epoch", unit.epoch.to_string()),
        ("quorate.task", unit.task.to_string()),
        ("quorate.container", unit.container.to_string()),
        ("quorate.namespace", unit.namespace.to_string()),
        ("quorate.job", unit.job.to_string()),
        ("quorate.version", unit.version.to_string()),
        ("quorate.slot", unit.slot.to_string()),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The unit that the labels name; `None` for a container that is not ours.
pub(super) fn read_labels(labels: &HashMap<String, String>) -> Option<Unit> {
    let text = |key: &str| labels.get(&format!("quorate.{key}"));
    let name = |key: &str| Name::parse(key, text(key)?).ok();
    Some(Unit {
        owner: Owner { cluster: Arc::from(text("cluster")?.as_str()), node: name("node")? },
        epoch: Epoch(text("epoch")?.parse().ok()?),
        task: text("task")?.parse().ok()?,
        container: name("container")?,
        namespace: name("namespace")?,
        job: name("job")?,
        version: JobVersion(text("version")?.parse().ok()?),
        slot: Slot(text("slot")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tests::unit;
    use quorate_model::{ContainerSpec, Limits, Resources, StopPolicy};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn name(text: &str) -> Name {
        Name::parse("name", text).unwrap()
    }

    fn work() -> Work {
        let mount = |volume: &str, read_only| quorate_model::Mount {
            volume: name(volume),
            target: format!("/{volume}"),
            read_only,
        };
        let spec = ContainerSpec {
            image: Some("busybox:1".to_owned()),
            command: vec!["httpd".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "b=c".to_owned())]),
            user: Some("1000:1000".to_owned()),
            workdir: Some("/work".to_owned()),
            mounts: vec![mount("host", true), mount("data", false), mount("scratch", false)],
            reserve: Resources { cpu_millis: 500, memory_bytes: 0 },
            limit: Limits { cpu_millis: 1_500, memory_bytes: 64 << 20, pids: 100 },
            stop: StopPolicy { signal: "SIGINT".to_owned(), grace: Duration::from_secs(7) },
            ..ContainerSpec::default()
        };
        let volumes = [
            ("host", Volume::Bind { source: "/srv".to_owned() }),
            ("data", Volume::Named { source: "shop-data".to_owned() }),
            ("scratch", Volume::Tmpfs { size_bytes: 1 << 20 }),
        ];
        let ports = [
            ("http", Port { container: 80, host: Some(8080), udp: false }),
            ("alt", Port { container: 80, host: Some(8081), udp: false }),
            ("dns", Port { container: 53, host: None, udp: true }),
        ];
        Work {
            unit: unit(7),
            spec,
            volumes: volumes.into_iter().map(|(key, volume)| (name(key), volume)).collect(),
            ports: ports.into_iter().map(|(key, port)| (name(key), port)).collect(),
        }
    }

    #[test]
    fn everything_that_a_job_says_reaches_the_engine() {
        let body = body(&work(), LogLimits { file_bytes: 1_000, files: 2 });
        assert_eq!(body.entrypoint.as_deref(), Some(["httpd".to_owned()].as_slice()));
        assert_eq!((body.cmd, body.env), (None, Some(vec!["A=b=c".to_owned()])));
        assert_eq!((body.stop_signal.as_deref(), body.stop_timeout), (Some("SIGINT"), Some(7)));
        assert_eq!((body.user.as_deref(), body.working_dir.as_deref()), (Some("1000:1000"), Some("/work")));
        let host = body.host_config.unwrap();
        assert_eq!(
            (host.nano_cpus, host.memory, host.pids_limit),
            (Some(1_500_000_000), Some(64 << 20), Some(100))
        );
        assert_eq!(host.cpu_shares, Some(512));
        let bindings = host.port_bindings.unwrap();
        let mut tcp: Vec<_> = bindings["80/tcp"]
            .as_ref()
            .unwrap()
            .iter()
            .map(|binding| binding.host_port.clone().unwrap())
            .collect();
        tcp.sort();
        assert_eq!((tcp, bindings.len()), (vec!["8080".to_owned(), "8081".to_owned()], 1));
        let mounts = host.mounts.unwrap();
        let kinds: Vec<_> =
            mounts.iter().map(|mount| (mount.typ.unwrap(), mount.source.as_deref())).collect();
        assert_eq!(
            kinds,
            [
                (MountType::BIND, Some("/srv")),
                (MountType::VOLUME, Some("shop-data")),
                (MountType::TMPFS, None)
            ]
        );
        assert_eq!((mounts[0].read_only, mounts[1].read_only), (Some(true), Some(false)));
        assert_eq!(mounts[2].tmpfs_options.as_ref().unwrap().size_bytes, Some(1 << 20));
        assert_eq!(host.log_config.unwrap().config.unwrap()["max-size"], "1000");
    }

    #[test]
    fn a_bare_container_has_no_limits() {
        let bare = Work { spec: ContainerSpec::default(), ..work() };
        let host = body(&bare, LogLimits::default()).host_config.unwrap();
        assert_eq!((host.nano_cpus, host.memory, host.pids_limit, host.cpu_shares), (None, None, None, None));
    }

    #[test]
    fn labels_read_back_and_foreign_ones_are_nobodys() {
        let labels = labels(&unit(7));
        assert_eq!(read_labels(&labels), Some(unit(7)));
        let mut torn = labels;
        torn.remove("quorate.job");
        assert_eq!(read_labels(&torn), None);
    }
}
