//! The fields of a job.

use std::collections::BTreeMap;

use quorate_model::job::MAX_TASKS_PER_JOB;
use quorate_model::{
    Constraint, ContainerSpec, JobKind, JobSpec, Name, Placement, Port, ReschedulePolicy, RestartCondition,
    RestartPolicy, Strategy, Volume,
};

use super::container::{self, CONTAINER_FIELDS};
use crate::document::fields::{self, Fields, Known};
use crate::document::{Entry, Node, Report, Value};

const JOB: Known = Known {
    now: &[
        "apiVersion",
        "name",
        "namespace",
        "type",
        "replicas",
        "completions",
        "parallelism",
        "priority",
        "labels",
        "placement",
        "restart",
        "reschedule",
        "ports",
        "volumes",
        "containers",
        // The short form of a job with a single container.
        "runtime",
        "image",
        "imagePull",
        "command",
        "args",
        "env",
        "user",
        "workdir",
        "mounts",
        "resources",
        "stop",
    ],
    later: &[
        "stack",
        "owner",
        "dependsOn",
        "update",
        "onNodeLoss",
        "migrate",
        "network",
        "service",
        "indexed",
        "deadline",
        "keepFinished",
        "periodic",
        "parameters",
        "payload",
        "secrets",
        "configs",
        "health",
        "security",
        "logs",
    ],
};

/// What a job is before its numbers are known.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Service,
    Batch,
}

/// The job of `root`, or `None` with at least one mistake reported.
///
/// `namespace` is the one asked for on the command line: a job that names another one is refused.
pub(super) fn read(root: &Node, namespace: Option<&Name>, report: &mut Report) -> Option<JobSpec> {
    let before = report.len();
    let job = Fields::of(root, "", JOB, report)?;
    check_version(&job, report);
    let name = job.get("name", report, |node| name_of("name", node));
    if name.is_none() && job.entry("name").is_none() {
        report.push(job.at(), "name is missing: a job needs one, like name: web");
    }
    let namespace = namespace_of(&job, namespace, report);
    let kind = kind(&job, report);
    let batch = matches!(kind, Some(JobKind::Batch { .. }));
    let priority = job.get("priority", report, |node| fields::whole(node, 1, 100));
    let labels = job.text_map("labels", report).unwrap_or_default();
    let placement = placement(&job, report);
    let restart = restart(&job, batch, report);
    let reschedule = reschedule(&job, report);
    let ports = ports(&job, report);
    let (volumes, read_only) = volumes(&job, report);
    let mut containers = containers(&job, report);
    for mount in containers.values_mut().flat_map(|container| &mut container.mounts) {
        mount.read_only |= read_only.contains(&mount.volume);
    }
    if report.len() > before {
        return None;
    }
    Some(JobSpec {
        namespace,
        name: name?,
        kind: kind?,
        priority: priority.and_then(|value| u8::try_from(value).ok()).unwrap_or(50),
        labels,
        placement,
        restart,
        reschedule,
        ports,
        volumes,
        containers,
    })
}

/// A name, as the model checks it.
pub(super) fn name_of(path: &str, node: &Node) -> Result<Name, String> {
    Name::parse(path, &fields::text(node)?).map_err(|invalid| invalid.reason)
}

fn check_version(job: &Fields<'_>, report: &mut Report) {
    if job.entry("apiVersion").is_none() {
        report.push(job.at(), "apiVersion is missing: begin with apiVersion: quorate/v1");
    }
    job.get("apiVersion", report, |node| match fields::text(node)?.as_str() {
        "quorate/v1" => Ok(()),
        other => Err(format!("{other:?} is unknown: this version reads quorate/v1")),
    });
}

fn namespace_of(job: &Fields<'_>, asked: Option<&Name>, report: &mut Report) -> Name {
    let given = job.get("namespace", report, |node| {
        let given = name_of("namespace", node)?;
        match asked {
            Some(asked) if *asked != given => {
                Err(format!("the file says {given}, the command line says {asked}: make them agree"))
            }
            _ => Ok(given),
        }
    });
    given.or_else(|| asked.cloned()).unwrap_or_else(Name::default_namespace)
}

fn kind(job: &Fields<'_>, report: &mut Report) -> Option<JobKind> {
    const WORDS: [(&str, Type); 2] = [("service", Type::Service), ("batch", Type::Batch)];
    /// Understood, but not offered.
    const LATER: [&str; 2] = ["global", "global-batch"];
    let given = match job.entry("type") {
        Some(entry) => {
            if fields::text(&entry.node).is_ok_and(|word| LATER.contains(&word.as_str())) {
                let message = "type: only service and batch are supported by this version of quorate";
                report.push(entry.node.at, message);
                return None;
            }
            job.word("type", &WORDS, report)?
        }
        None => Type::Service,
    };
    let mut number =
        |key: &str, least: u32| job.get(key, report, |node| fields::whole(node, least, MAX_TASKS_PER_JOB));
    let (replicas, completions, parallelism) =
        (number("replicas", 0), number("completions", 1), number("parallelism", 1));
    let foreign: &[&str] = if given == Type::Batch { &["replicas"] } else { &["completions", "parallelism"] };
    for key in foreign {
        if let Some(entry) = job.entry(key) {
            let message = if given == Type::Batch {
                format!("{key} is for services: a batch has completions and parallelism")
            } else {
                format!("{key} is for batches: say type: batch, or give replicas")
            };
            report.push(entry.key_at, message);
        }
    }
    Some(match given {
        Type::Batch => {
            let completions = completions.unwrap_or(1);
            JobKind::Batch { completions, parallelism: parallelism.unwrap_or(completions) }
        }
        Type::Service => JobKind::Service { replicas: replicas.unwrap_or(1) },
    })
}

fn placement(job: &Fields<'_>, report: &mut Report) -> Placement {
    const KNOWN: Known =
        Known { now: &["constraints", "maxPerNode", "strategy"], later: &["affinities", "spread"] };
    let mut out = Placement::default();
    let Some(node) = job.node("placement", report) else { return out };
    let Some(fields) = Fields::of(node, "placement", KNOWN, report) else { return out };
    let constraint = |path: &str, node: &Node, report: &mut Report| {
        let parsed = fields::text(node)
            .and_then(|text| Constraint::parse(path, &text).map_err(|invalid| invalid.reason));
        parsed.map_err(|message| report.push(node.at, format!("{path}: {message}"))).ok()
    };
    out.constraints = fields.list("constraints", report, constraint).unwrap_or_default();
    let most = fields.get("maxPerNode", report, |node| fields::whole(node, 1, MAX_TASKS_PER_JOB));
    out.max_per_node = most.unwrap_or(0);
    out.strategy =
        fields.word("strategy", &[("spread", Strategy::Spread), ("binpack", Strategy::Binpack)], report);
    out
}

fn restart(job: &Fields<'_>, batch: bool, report: &mut Report) -> RestartPolicy {
    const KNOWN: Known =
        Known { now: &["condition", "attempts", "window", "delay", "maxDelay"], later: &["backoff", "then"] };
    const WORDS: [(&str, RestartCondition); 3] = [
        ("any", RestartCondition::Any),
        ("on-failure", RestartCondition::OnFailure),
        ("never", RestartCondition::Never),
    ];
    let mut out = RestartPolicy::default();
    if batch {
        // A batch that ended well is done.
        out.condition = RestartCondition::OnFailure;
    }
    let Some(node) = job.node("restart", report) else { return out };
    let Some(fields) = Fields::of(node, "restart", KNOWN, report) else { return out };
    out.condition = fields.word("condition", &WORDS, report).unwrap_or(out.condition);
    let attempts = fields.get("attempts", report, |node| fields::whole(node, 0, u32::MAX));
    out.attempts = attempts.unwrap_or(out.attempts);
    out.window = fields.get("window", report, fields::duration).unwrap_or(out.window);
    out.delay = fields.get("delay", report, fields::duration).unwrap_or(out.delay);
    out.max_delay = fields.get("maxDelay", report, fields::duration).unwrap_or(out.max_delay);
    out
}

fn reschedule(job: &Fields<'_>, report: &mut Report) -> ReschedulePolicy {
    const KNOWN: Known = Known { now: &["attempts", "delay", "maxDelay"], later: &["backoff"] };
    let mut out = ReschedulePolicy::default();
    let Some(node) = job.node("reschedule", report) else { return out };
    let Some(fields) = Fields::of(node, "reschedule", KNOWN, report) else { return out };
    let attempts = fields.get("attempts", report, |node| match &node.value {
        Value::Text(text) if text == "unlimited" => Ok(None),
        Value::Integer(..) => fields::whole(node, 0, u32::MAX).map(Some),
        other => Err(format!("expected a whole number or unlimited, found {}", other.describe())),
    });
    out.attempts = attempts.unwrap_or(out.attempts);
    out.delay = fields.get("delay", report, fields::duration).unwrap_or(out.delay);
    out.max_delay = fields.get("maxDelay", report, fields::duration).unwrap_or(out.max_delay);
    out
}

fn ports(job: &Fields<'_>, report: &mut Report) -> BTreeMap<Name, Port> {
    const KNOWN: Known = Known { now: &["container", "protocol", "publish"], later: &[] };
    let read = |path: &str, entry: &Entry, report: &mut Report| {
        let name = key_name(path, entry, report)?;
        let fields = Fields::of(&entry.node, path, KNOWN, report)?;
        let container = fields.get("container", report, port_number);
        if fields.entry("container").is_none() {
            report.push(
                entry.key_at,
                format!("{path}.container is missing: which port does the container listen on?"),
            );
        }
        let udp = fields.word("protocol", &[("tcp", false), ("udp", true)], report).unwrap_or(false);
        let host = publish(&fields, path, report);
        Some((name, Port { container: container?, host, udp }))
    };
    job.map("ports", report, read).unwrap_or_default().into_iter().map(|(_, port)| port).collect()
}

fn publish(port: &Fields<'_>, path: &str, report: &mut Report) -> Option<u16> {
    const KNOWN: Known = Known { now: &["mode", "port"], later: &[] };
    let path = format!("{path}.publish");
    let entry = port.entry("publish")?;
    let fields = Fields::of(port.node("publish", report)?, &path, KNOWN, report)?;
    if fields.word("mode", &[("host", true), ("ingress", false)], report) == Some(false) {
        let at = fields.entry("mode").map_or(entry.key_at, |entry| entry.node.at);
        let message = format!("{path}.mode: ingress is not supported by this version of quorate: use host");
        report.push(at, message);
    }
    if fields.entry("port").is_none() {
        let message = format!("{path}.port is missing: this version of quorate cannot choose one");
        report.push(entry.key_at, message);
    }
    fields.get("port", report, port_number)
}

fn port_number(node: &Node) -> Result<u16, String> {
    let number = fields::whole(node, 1, u16::MAX.into())?;
    u16::try_from(number).map_err(|_| format!("{number} is no port"))
}

fn volumes(job: &Fields<'_>, report: &mut Report) -> (BTreeMap<Name, Volume>, Vec<Name>) {
    const KNOWN: Known = Known { now: &["type", "source", "size", "readOnly"], later: &[] };
    #[derive(Clone, Copy, PartialEq)]
    enum Type {
        Bind,
        Named,
        Tmpfs,
    }
    let mut read_only = Vec::new();
    let read = |path: &str, entry: &Entry, report: &mut Report| {
        let name = key_name(path, entry, report)?;
        let fields = Fields::of(&entry.node, path, KNOWN, report)?;
        let words = [("bind", Type::Bind), ("volume", Type::Named), ("tmpfs", Type::Tmpfs)];
        let kind = fields.word("type", &words, report);
        let source = fields.get("source", report, fields::text);
        let size = fields.get("size", report, fields::memory);
        if fields.get("readOnly", report, fields::flag) == Some(true) {
            read_only.push(name.clone());
        }
        if fields.entry("type").is_none() {
            report.push(entry.key_at, format!("{path}.type is missing: bind, volume or tmpfs"));
        }
        let kind = kind?;
        let (foreign, needs_source) = if kind == Type::Tmpfs { ("source", false) } else { ("size", true) };
        if let Some(other) = fields.entry(foreign) {
            report.push(
                other.key_at,
                format!("{path}.{foreign} does not go with this type of volume: remove it"),
            );
        }
        if needs_source && fields.entry("source").is_none() {
            report.push(entry.key_at, format!("{path}.source is missing"));
        }
        let volume = match kind {
            Type::Bind => Volume::Bind { source: source? },
            Type::Named => Volume::Named { source: source? },
            Type::Tmpfs => Volume::Tmpfs { size_bytes: size.unwrap_or(0) },
        };
        Some((name, volume))
    };
    let volumes = job.map("volumes", report, read).unwrap_or_default();
    (volumes.into_iter().map(|(_, volume)| volume).collect(), read_only)
}

fn key_name(path: &str, entry: &Entry, report: &mut Report) -> Option<Name> {
    Name::parse(path, &entry.key)
        .map_err(|invalid| report.push(entry.key_at, format!("{path}: {}", invalid.reason)))
        .ok()
}

fn containers(job: &Fields<'_>, report: &mut Report) -> BTreeMap<Name, ContainerSpec> {
    let short: Vec<&Entry> = CONTAINER_FIELDS.now.iter().filter_map(|key| job.entry(key)).collect();
    if let Some(long) = job.entry("containers") {
        for entry in short {
            let message = format!(
                "{key} stands beside containers: move it into one of them, or use the short form alone",
                key = entry.key
            );
            report.push(entry.key_at, message);
        }
        if long.node.value == Value::Table(Vec::new()) {
            report.push(long.key_at, "containers is empty: a job needs one");
        }
        let read = |path: &str, entry: &Entry, report: &mut Report| {
            let name = key_name(path, entry, report)?;
            let fields = Fields::of(&entry.node, path, CONTAINER_FIELDS, report)?;
            Some((name, container::read(&fields, path, report)))
        };
        let found = job.map("containers", report, read).unwrap_or_default();
        return found.into_iter().map(|(_, container)| container).collect();
    }
    if short.is_empty() {
        report.push(job.at(), "this job runs nothing: give image, or containers");
        return BTreeMap::new();
    }
    let container = container::read(job, "", report);
    Name::parse("containers", "app").map(|name| [(name, container)].into()).unwrap_or_default()
}
