//! What runs and how it is restarted. Defaults are those of the `.proto` comments.

use std::collections::BTreeMap;

use quorate_model::{
    ContainerSpec, ImagePull, InvalidList, Limits, Mount, Name, Port, ReschedulePolicy, Resources,
    RestartCondition, RestartPolicy, RuntimeKind, StopPolicy, Volume,
};

use super::{by_name, choice, duration, span};
use crate::generated::common::{self as pb, volume::Source};

/// Containers by name, in.
pub(crate) fn containers(
    map: BTreeMap<String, pb::ContainerSpec>,
    out: &mut InvalidList,
) -> BTreeMap<Name, ContainerSpec> {
    by_name("containers", map, out, |path, value, out| Some(container(path, value, out)))
}

/// Volumes by name, in.
pub(crate) fn volumes(map: BTreeMap<String, pb::Volume>, out: &mut InvalidList) -> BTreeMap<Name, Volume> {
    by_name("volumes", map, out, |path, value, out| {
        if value.source.is_none() {
            out.push(format!("{path}.type"), "required: bind, volume or tmpfs");
        }
        Some(match value.source? {
            Source::Bind(bind) => Volume::Bind { source: bind.source },
            Source::Named(named) => Volume::Named { source: named.source },
            Source::Tmpfs(tmpfs) => Volume::Tmpfs { size_bytes: tmpfs.size_bytes },
        })
    })
}

/// Ports by name, in.
pub(crate) fn ports(map: BTreeMap<String, pb::Port>, out: &mut InvalidList) -> BTreeMap<Name, Port> {
    by_name("ports", map, out, |path, value, out| {
        let mut number = |field: &str, number: u32| {
            u16::try_from(number)
                .map_err(|_| out.push(format!("{path}.{field}"), format!("{number}: must be 1 to 65535")))
                .ok()
        };
        let container = number("container", value.container);
        let host = number("publish.port", value.host);
        Some(Port { container: container?, host: Some(host?).filter(|port| *port != 0), udp: value.udp })
    })
}

fn container(path: &str, value: pb::ContainerSpec, out: &mut InvalidList) -> ContainerSpec {
    let runtime = match choice(&format!("{path}.runtime"), value.runtime, out) {
        pb::Runtime::Unspecified | pb::Runtime::Docker => RuntimeKind::Docker,
        pb::Runtime::Process => RuntimeKind::Process,
        pb::Runtime::Fake => RuntimeKind::Fake,
    };
    let pull = match choice(&format!("{path}.imagePull.policy"), value.pull, out) {
        pb::PullPolicy::Unspecified | pb::PullPolicy::IfMissing => ImagePull::IfMissing,
        pb::PullPolicy::Always => ImagePull::Always,
        pb::PullPolicy::Never => ImagePull::Never,
    };
    let mut mounts = Vec::with_capacity(value.mounts.len());
    for (i, mount) in value.mounts.into_iter().enumerate() {
        match Name::parse(&format!("{path}.mounts[{i}].volume"), &mount.volume) {
            Ok(volume) => mounts.push(Mount { volume, target: mount.target, read_only: mount.read_only }),
            Err(invalid) => out.0.push(invalid),
        }
    }
    let limit = value.limit.unwrap_or_default();
    ContainerSpec {
        runtime,
        image: given(value.image),
        digest: given(value.digest),
        pull,
        command: value.command,
        args: value.args,
        env: value.env,
        user: given(value.user),
        workdir: given(value.workdir),
        mounts,
        reserve: value.reserve.unwrap_or_default().into(),
        limit: Limits { cpu_millis: limit.cpu_millis, memory_bytes: limit.memory_bytes, pids: limit.pids },
        stop: stop(&format!("{path}.stop"), value.stop.unwrap_or_default(), out),
    }
}

fn stop(path: &str, value: pb::StopPolicy, out: &mut InvalidList) -> StopPolicy {
    let default = StopPolicy::default();
    StopPolicy {
        signal: given(value.signal).unwrap_or(default.signal),
        grace: span(&format!("{path}.grace"), value.grace, default.grace, out),
    }
}

/// Restarts on the node, in; `unspecified` is which ends count when the sender does not say.
pub(crate) fn restart(
    value: Option<pb::RestartPolicy>,
    unspecified: RestartCondition,
    out: &mut InvalidList,
) -> RestartPolicy {
    let (value, default) = (value.unwrap_or_default(), RestartPolicy::default());
    let condition = match choice("restart.condition", value.condition, out) {
        pb::RestartCondition::Unspecified => unspecified,
        pb::RestartCondition::Any => RestartCondition::Any,
        pb::RestartCondition::OnFailure => RestartCondition::OnFailure,
        pb::RestartCondition::Never => RestartCondition::Never,
    };
    RestartPolicy {
        condition,
        attempts: value.attempts.unwrap_or(default.attempts),
        window: span("restart.window", value.window, default.window, out),
        delay: span("restart.delay", value.delay, default.delay, out),
        max_delay: span("restart.maxDelay", value.max_delay, default.max_delay, out),
    }
}

/// Replacement by the leader, in.
pub(crate) fn reschedule(value: Option<pb::ReschedulePolicy>, out: &mut InvalidList) -> ReschedulePolicy {
    let (value, default) = (value.unwrap_or_default(), ReschedulePolicy::default());
    ReschedulePolicy {
        attempts: value.attempts,
        delay: span("reschedule.delay", value.delay, default.delay, out),
        max_delay: span("reschedule.maxDelay", value.max_delay, default.max_delay, out),
    }
}

/// An empty text is an unset one.
fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<Resources> for pb::Resources {
    fn from(value: Resources) -> Self {
        Self { cpu_millis: value.cpu_millis, memory_bytes: value.memory_bytes }
    }
}

impl From<pb::Resources> for Resources {
    fn from(value: pb::Resources) -> Self {
        Self { cpu_millis: value.cpu_millis, memory_bytes: value.memory_bytes }
    }
}

impl From<&ContainerSpec> for pb::ContainerSpec {
    fn from(value: &ContainerSpec) -> Self {
        let runtime = match value.runtime {
            RuntimeKind::Docker => pb::Runtime::Docker,
            RuntimeKind::Process => pb::Runtime::Process,
            RuntimeKind::Fake => pb::Runtime::Fake,
        };
        let pull = match value.pull {
            ImagePull::IfMissing => pb::PullPolicy::IfMissing,
            ImagePull::Always => pb::PullPolicy::Always,
            ImagePull::Never => pb::PullPolicy::Never,
        };
        let mount = |mount: &Mount| pb::Mount {
            volume: mount.volume.as_str().to_owned(),
            target: mount.target.clone(),
            read_only: mount.read_only,
        };
        let Limits { cpu_millis, memory_bytes, pids } = value.limit;
        Self {
            runtime: runtime.into(),
            image: value.image.clone().unwrap_or_default(),
            digest: value.digest.clone().unwrap_or_default(),
            pull: pull.into(),
            command: value.command.clone(),
            args: value.args.clone(),
            env: value.env.clone(),
            user: value.user.clone().unwrap_or_default(),
            workdir: value.workdir.clone().unwrap_or_default(),
            mounts: value.mounts.iter().map(mount).collect(),
            reserve: Some(value.reserve.into()),
            limit: Some(pb::Limits { cpu_millis, memory_bytes, pids }),
            stop: Some(pb::StopPolicy {
                signal: value.stop.signal.clone(),
                grace: Some(duration(value.stop.grace)),
            }),
        }
    }
}

impl From<&Volume> for pb::Volume {
    fn from(value: &Volume) -> Self {
        let source = match value {
            Volume::Bind { source } => Source::Bind(pb::BindVolume { source: source.clone() }),
            Volume::Named { source } => Source::Named(pb::NamedVolume { source: source.clone() }),
            Volume::Tmpfs { size_bytes } => Source::Tmpfs(pb::TmpfsVolume { size_bytes: *size_bytes }),
        };
        Self { source: Some(source) }
    }
}

impl From<&Port> for pb::Port {
    fn from(value: &Port) -> Self {
        Self { container: value.container.into(), host: value.host.unwrap_or(0).into(), udp: value.udp }
    }
}

impl From<&RestartPolicy> for pb::RestartPolicy {
    fn from(value: &RestartPolicy) -> Self {
        let condition = match value.condition {
            RestartCondition::Any => pb::RestartCondition::Any,
            RestartCondition::OnFailure => pb::RestartCondition::OnFailure,
            RestartCondition::Never => pb::RestartCondition::Never,
        };
        Self {
            condition: condition.into(),
            attempts: Some(value.attempts),
            window: Some(duration(value.window)),
            delay: Some(duration(value.delay)),
            max_delay: Some(duration(value.max_delay)),
        }
    }
}

impl From<&ReschedulePolicy> for pb::ReschedulePolicy {
    fn from(value: &ReschedulePolicy) -> Self {
        Self {
            attempts: value.attempts,
            delay: Some(duration(value.delay)),
            max_delay: Some(duration(value.max_delay)),
        }
    }
}
