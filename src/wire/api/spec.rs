//! Specifications of jobs as clients send and read them.

use prost::Message;
use quorate_model::{
    Constraint, InvalidList, JobKind, JobSpec, Name, Placement, RestartCondition, Strategy,
    job::MAX_SPEC_BYTES, quantity,
};

use crate::{
    ApiError, Reason,
    common::{by_text, choice, containers, ports, reschedule, restart, volumes},
    generated::api::{self as pb, job_spec::Kind},
};

/// The priority of a job that gives none.
const DEFAULT_PRIORITY: u8 = 50;

/// Takes a specification from a client: bounds its size, converts it and checks every rule.
///
/// # Errors
/// `SPEC_TOO_LARGE`, or `JOB_INVALID` with all violations.
pub fn accept_spec(sent: Option<pb::JobSpec>) -> Result<JobSpec, ApiError> {
    let sent = sent.unwrap_or_default();
    let size = sent.encoded_len();
    if size > MAX_SPEC_BYTES {
        let most = quantity::memory(MAX_SPEC_BYTES as u64);
        return Err(ApiError::new(
            Reason::SpecTooLarge,
            format!("the specification has {size} bytes, but at most {most} are stored"),
        ));
    }
    let checked = JobSpec::try_from(sent).and_then(|spec| spec.validate().map(|()| spec));
    checked.map_err(|list| ApiError::invalid(Reason::JobInvalid, "the job", list))
}

/// A namespace from a client; empty = the default one.
///
/// # Errors
/// `ARGUMENT_INVALID` when it is no name.
pub fn namespace(text: &str) -> Result<Name, ApiError> {
    if text.is_empty() {
        return Ok(Name::default_namespace());
    }
    Name::parse("namespace", text)
        .map_err(|invalid| ApiError::invalid(Reason::ArgumentInvalid, "the request", invalid.into()))
}

impl TryFrom<pb::JobSpec> for JobSpec {
    type Error = InvalidList;

    /// Converts; the rules of the model are checked by [`JobSpec::validate`].
    fn try_from(value: pb::JobSpec) -> Result<Self, InvalidList> {
        let mut out = InvalidList::default();
        let namespace = match value.namespace.as_str() {
            "" => Some(Name::default_namespace()),
            text => name("namespace", text, &mut out),
        };
        let job_name = name("name", &value.name, &mut out);
        let kind = value.kind.map(|kind| match kind {
            Kind::Service(pb::ServiceSpec { replicas }) => JobKind::Service { replicas },
            Kind::Batch(pb::BatchSpec { completions, parallelism }) => {
                JobKind::Batch { completions, parallelism }
            }
        });
        if kind.is_none() {
            out.push("type", "required: service or batch");
        }
        let priority = match u8::try_from(value.priority) {
            Ok(0) => DEFAULT_PRIORITY,
            Ok(priority) => priority,
            Err(_) => {
                out.push("priority", format!("{} is out of range: 1 to 100", value.priority));
                DEFAULT_PRIORITY
            }
        };
        let placement = placement(value.placement.unwrap_or_default(), &mut out);
        // What ended well is done, unless it was to run for ever.
        let unspecified = match kind {
            Some(JobKind::Batch { .. }) => RestartCondition::OnFailure,
            Some(JobKind::Service { .. }) | None => RestartCondition::Any,
        };
        let restart = restart(value.restart, unspecified, &mut out);
        let reschedule = reschedule(value.reschedule, &mut out);
        let ports = ports(value.ports, &mut out);
        let volumes = volumes(value.volumes, &mut out);
        let containers = containers(value.containers, &mut out);
        let (Some(namespace), Some(name), Some(kind), []) = (namespace, job_name, kind, out.0.as_slice())
        else {
            return Err(out);
        };
        Ok(Self {
            namespace,
            name,
            kind,
            priority,
            labels: value.labels,
            placement,
            restart,
            reschedule,
            ports,
            volumes,
            containers,
        })
    }
}

fn name(path: &str, text: &str, out: &mut InvalidList) -> Option<Name> {
    Name::parse(path, text).map_err(|invalid| out.0.push(invalid)).ok()
}

fn placement(value: pb::Placement, out: &mut InvalidList) -> Placement {
    let mut constraints = Vec::with_capacity(value.constraints.len());
    for (i, text) in value.constraints.iter().enumerate() {
        match Constraint::parse(&format!("placement.constraints[{i}]"), text) {
            Ok(constraint) => constraints.push(constraint),
            Err(invalid) => out.0.push(invalid),
        }
    }
    let strategy = match choice("placement.strategy", value.strategy, out) {
        pb::PlacementStrategy::Unspecified => None,
        pb::PlacementStrategy::Spread => Some(Strategy::Spread),
        pb::PlacementStrategy::Binpack => Some(Strategy::Binpack),
    };
    Placement { constraints, max_per_node: value.max_per_node, strategy }
}

impl From<&JobSpec> for pb::JobSpec {
    fn from(value: &JobSpec) -> Self {
        let kind = match value.kind {
            JobKind::Service { replicas } => Kind::Service(pb::ServiceSpec { replicas }),
            JobKind::Batch { completions, parallelism } => {
                Kind::Batch(pb::BatchSpec { completions, parallelism })
            }
        };
        let strategy = match value.placement.strategy {
            None => pb::PlacementStrategy::Unspecified,
            Some(Strategy::Spread) => pb::PlacementStrategy::Spread,
            Some(Strategy::Binpack) => pb::PlacementStrategy::Binpack,
        };
        Self {
            namespace: value.namespace.as_str().to_owned(),
            name: value.name.as_str().to_owned(),
            kind: Some(kind),
            priority: value.priority.into(),
            labels: value.labels.clone(),
            placement: Some(pb::Placement {
                constraints: value.placement.constraints.iter().map(ToString::to_string).collect(),
                max_per_node: value.placement.max_per_node,
                strategy: strategy.into(),
            }),
            restart: Some((&value.restart).into()),
            reschedule: Some((&value.reschedule).into()),
            ports: by_text(&value.ports),
            volumes: by_text(&value.volumes),
            containers: by_text(&value.containers),
        }
    }
}
