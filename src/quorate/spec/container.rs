//! The fields of a container.

use quorate_model::{ContainerSpec, ImagePull, Limits, Mount, Resources, RuntimeKind, StopPolicy};

use super::job::name_of;
use crate::document::fields::{self, Fields, Known, join};
use crate::document::{Entry, Node, Report};

/// What a container may hold; the same words are the short form at the top of a job.
pub(super) const CONTAINER_FIELDS: Known = Known {
    now: &[
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
    later: &["hook", "secrets", "configs", "health", "security", "logs"],
};

const RUNTIMES: [(&str, RuntimeKind); 2] =
    [("docker", RuntimeKind::Docker), ("process", RuntimeKind::Process)];
/// For tests of quorate itself: taken, but not offered.
const FAKE: &str = "fake";

/// The container of `fields`, whose path is `path` (empty in the short form). Mistakes go to `report`.
pub(super) fn read(fields: &Fields<'_>, path: &str, report: &mut Report) -> ContainerSpec {
    let (reserve, limit) = resources(fields, path, report);
    ContainerSpec {
        runtime: runtime(fields, report),
        image: fields.get("image", report, fields::text),
        digest: None,
        pull: pull(fields, path, report),
        command: fields.texts("command", report).unwrap_or_default(),
        args: fields.texts("args", report).unwrap_or_default(),
        env: fields.text_map("env", report).unwrap_or_default(),
        user: fields.get("user", report, fields::spelt),
        workdir: fields.get("workdir", report, fields::text),
        mounts: mounts(fields, report),
        reserve,
        limit,
        stop: stop(fields, path, report),
    }
}

fn runtime(container: &Fields<'_>, report: &mut Report) -> RuntimeKind {
    let fake = |entry: &Entry| fields::text(&entry.node).is_ok_and(|word| word == FAKE);
    if container.entry("runtime").is_some_and(fake) {
        return RuntimeKind::Fake;
    }
    container.word("runtime", &RUNTIMES, report).unwrap_or_default()
}

fn pull(container: &Fields<'_>, path: &str, report: &mut Report) -> ImagePull {
    const KNOWN: Known = Known { now: &["policy"], later: &["secret"] };
    const WORDS: [(&str, ImagePull); 3] =
        [("if-missing", ImagePull::IfMissing), ("always", ImagePull::Always), ("never", ImagePull::Never)];
    let Some(node) = container.node("imagePull", report) else { return ImagePull::default() };
    let Some(fields) = Fields::of(node, &join(path, "imagePull"), KNOWN, report) else {
        return ImagePull::default();
    };
    fields.word("policy", &WORDS, report).unwrap_or_default()
}

fn mounts(container: &Fields<'_>, report: &mut Report) -> Vec<Mount> {
    const KNOWN: Known = Known { now: &["volume", "target", "readOnly"], later: &[] };
    let read = |path: &str, node: &Node, report: &mut Report| {
        let fields = Fields::of(node, path, KNOWN, report)?;
        for key in ["volume", "target"] {
            if fields.entry(key).is_none() {
                report.push(node.at, format!("{path}.{key} is missing"));
            }
        }
        let volume = fields.get("volume", report, |node| name_of("volume", node));
        let target = fields.get("target", report, fields::text);
        let read_only = fields.get("readOnly", report, fields::flag).unwrap_or(false);
        Some(Mount { volume: volume?, target: target?, read_only })
    };
    container.list("mounts", report, read).unwrap_or_default()
}

fn resources(container: &Fields<'_>, path: &str, report: &mut Report) -> (Resources, Limits) {
    const KNOWN: Known = Known { now: &["reserve", "limit"], later: &["devices"] };
    const RESERVE: Known = Known { now: &["cpu", "memory"], later: &[] };
    const LIMIT: Known = Known { now: &["cpu", "memory", "pids"], later: &[] };
    let (mut reserve, mut limit) = (Resources::default(), Limits::default());
    let path = join(path, "resources");
    let Some(node) = container.node("resources", report) else { return (reserve, limit) };
    let Some(fields) = Fields::of(node, &path, KNOWN, report) else { return (reserve, limit) };
    let part = |key: &str, known: Known, report: &mut Report| {
        Fields::of(fields.node(key, report)?, &join(&path, key), known, report)
    };
    if let Some(fields) = part("reserve", RESERVE, report) {
        reserve.cpu_millis = fields.get("cpu", report, fields::cpu).unwrap_or(0);
        reserve.memory_bytes = fields.get("memory", report, fields::memory).unwrap_or(0);
    }
    if let Some(fields) = part("limit", LIMIT, report) {
        limit.cpu_millis = fields.get("cpu", report, |node| positive(fields::cpu(node)?)).unwrap_or(0);
        limit.memory_bytes =
            fields.get("memory", report, |node| positive(fields::memory(node)?)).unwrap_or(0);
        limit.pids = fields.get("pids", report, |node| fields::whole(node, 1, 4_194_304)).unwrap_or(0).into();
    }
    (reserve, limit)
}

/// Zero would mean "no limit", which nobody who writes `limit` wants.
fn positive(amount: u64) -> Result<u64, String> {
    if amount == 0 {
        Err("a limit of 0 lets nothing run: remove it for no limit".to_owned())
    } else {
        Ok(amount)
    }
}

fn stop(container: &Fields<'_>, path: &str, report: &mut Report) -> StopPolicy {
    const KNOWN: Known = Known { now: &["signal", "grace"], later: &["preStop"] };
    let mut out = StopPolicy::default();
    let Some(node) = container.node("stop", report) else { return out };
    let Some(fields) = Fields::of(node, &join(path, "stop"), KNOWN, report) else { return out };
    out.signal = fields.get("signal", report, fields::text).unwrap_or(out.signal);
    out.grace = fields.get("grace", report, fields::duration).unwrap_or(out.grace);
    out
}
