//! Containers, their mounts, ports and volumes.

use std::time::Duration;

use quorate_model::{ContainerSpec, Limits, Mount, Port, Resources, StopPolicy, Volume};
use quorate_state::Halt;

use super::{
    enums::{number, word},
    name, narrow,
    pack::{all, millis},
    required,
};
use crate::generated::store::{self as pb, volume::Kind};

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

impl From<Limits> for pb::Limits {
    fn from(value: Limits) -> Self {
        Self { cpu_millis: value.cpu_millis, memory_bytes: value.memory_bytes, pids: value.pids }
    }
}

impl From<pb::Limits> for Limits {
    fn from(value: pb::Limits) -> Self {
        Self { cpu_millis: value.cpu_millis, memory_bytes: value.memory_bytes, pids: value.pids }
    }
}

impl From<&StopPolicy> for pb::StopPolicy {
    fn from(value: &StopPolicy) -> Self {
        Self { signal: value.signal.clone(), grace_ms: millis(value.grace) }
    }
}

impl From<pb::StopPolicy> for StopPolicy {
    fn from(value: pb::StopPolicy) -> Self {
        Self { signal: value.signal, grace: Duration::from_millis(value.grace_ms) }
    }
}

impl From<&Volume> for pb::Volume {
    fn from(value: &Volume) -> Self {
        let kind = match value {
            Volume::Bind { source } => Kind::BindSource(source.clone()),
            Volume::Named { source } => Kind::NamedSource(source.clone()),
            Volume::Tmpfs { size_bytes } => Kind::TmpfsBytes(*size_bytes),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Volume> for Volume {
    type Error = Halt;

    fn try_from(value: pb::Volume) -> Result<Self, Halt> {
        Ok(match required("volume", value.kind)? {
            Kind::BindSource(source) => Self::Bind { source },
            Kind::NamedSource(source) => Self::Named { source },
            Kind::TmpfsBytes(size_bytes) => Self::Tmpfs { size_bytes },
        })
    }
}

impl From<&Mount> for pb::Mount {
    fn from(value: &Mount) -> Self {
        Self {
            volume: value.volume.as_str().to_owned(),
            target: value.target.clone(),
            read_only: value.read_only,
        }
    }
}

impl TryFrom<pb::Mount> for Mount {
    type Error = Halt;

    fn try_from(value: pb::Mount) -> Result<Self, Halt> {
        Ok(Self {
            volume: name("volume of a mount", &value.volume)?,
            target: value.target,
            read_only: value.read_only,
        })
    }
}

impl From<&Port> for pb::Port {
    fn from(value: &Port) -> Self {
        Self { container: value.container.into(), host: value.host.map(Into::into), udp: value.udp }
    }
}

impl TryFrom<pb::Port> for Port {
    type Error = Halt;

    fn try_from(value: pb::Port) -> Result<Self, Halt> {
        Ok(Self {
            container: narrow("container port", value.container)?,
            host: value.host.map(|port| narrow("host port", port)).transpose()?,
            udp: value.udp,
        })
    }
}

impl From<&ContainerSpec> for pb::ContainerSpec {
    fn from(value: &ContainerSpec) -> Self {
        Self {
            runtime: number::<pb::RuntimeKind, _>(value.runtime),
            image: value.image.clone(),
            digest: value.digest.clone(),
            pull: number::<pb::ImagePull, _>(value.pull),
            command: value.command.clone(),
            args: value.args.clone(),
            env: value.env.clone(),
            user: value.user.clone(),
            workdir: value.workdir.clone(),
            mounts: value.mounts.iter().map(Into::into).collect(),
            reserve: Some(value.reserve.into()),
            limit: Some(value.limit.into()),
            stop: Some((&value.stop).into()),
        }
    }
}

impl TryFrom<pb::ContainerSpec> for ContainerSpec {
    type Error = Halt;

    fn try_from(value: pb::ContainerSpec) -> Result<Self, Halt> {
        Ok(Self {
            runtime: word::<pb::RuntimeKind, _>("runtime", value.runtime)?,
            image: value.image,
            digest: value.digest,
            pull: word::<pb::ImagePull, _>("pull policy", value.pull)?,
            command: value.command,
            args: value.args,
            env: value.env,
            user: value.user,
            workdir: value.workdir,
            mounts: all(value.mounts)?,
            reserve: required("reservation", value.reserve)?.into(),
            limit: required("limit", value.limit)?.into(),
            stop: required("stop policy", value.stop)?.into(),
        })
    }
}
