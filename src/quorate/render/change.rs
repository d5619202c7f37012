//! What changed, one line a change.

use quorate_base::Timestamp;
use quorate_wire::api::change::Object;
use quorate_wire::api::{Change, ChangeKind, ManagerRole};
use serde_json::{Value, json};

use super::words::{or_none, word};
use super::{job, node, task};

/// A change for people: revision, time, kind of object, how it changed, its name, and how it is now.
pub(crate) fn line(change: &Change, revision: u64, time: Option<Timestamp>, now: Timestamp) -> String {
    let how = word(change.kind().as_str_name(), "CHANGE_KIND");
    let (kind, name, what) = match &change.object {
        Some(Object::Job(job)) => {
            let what = format!("version {}, {}, {}", job.version, job::status(job), job::tasks(job));
            ("job", format!("{}/{}", job.namespace, job.name), what)
        }
        Some(Object::Task(task)) => {
            let on = if task.node.is_empty() { String::new() } else { format!(" on {}", task.node) };
            let state = task::state(task);
            let why = task::why(task, now);
            let why = if why.is_empty() { why } else { format!(": {why}") };
            ("task", format!("{} {}", task.id, task::name(task)), format!("{state}{on}{why}"))
        }
        Some(Object::Node(node)) => {
            let why = if node.reason.is_empty() { String::new() } else { format!(": {}", node.reason) };
            ("node", node.name.clone(), format!("{}{why}", node::status_word(node)))
        }
        Some(Object::Manager(manager)) => {
            let role = word(manager.role().as_str_name(), "MANAGER_ROLE");
            let role = if manager.role() == ManagerRole::Unspecified { String::new() } else { role };
            ("manager", manager.name.clone(), role)
        }
        None => ("unknown", String::new(), String::new()),
    };
    let time = time.map_or_else(|| or_none(""), |time| time.to_string());
    let gone = if change.kind() == ChangeKind::Deleted { "" } else { &*what };
    format!("{revision:>8}  {time:<24}  {kind:<7}  {how:<7}  {name}  {gone}").trim_end().to_owned()
}

/// A change for programs: the change of the API, with its revision and time.
pub(crate) fn document(change: &Change, revision: u64, time: Option<Timestamp>) -> Value {
    let mut out = json!({ "revision": revision.to_string() });
    if let (Some(out), Ok(Value::Object(change))) = (out.as_object_mut(), serde_json::to_value(change)) {
        if let Some(time) = time {
            out.insert("time".to_owned(), Value::String(time.to_string()));
        }
        out.extend(change);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::job::tests::service;
    use crate::render::task::tests::{NOW, task};
    use quorate_wire::api::{Manager, Node, NodeStatus, Task, TaskCounts, TaskState};

    fn change(kind: ChangeKind, object: Object) -> Change {
        Change { kind: kind.into(), object: Some(object) }
    }

    #[test]
    fn each_kind_of_object_has_its_line() {
        let job = service("web", TaskCounts { desired: 2, running: 2, ..TaskCounts::default() });
        let failed = Task { exit_code: Some(3), reason: "exit 3".into(), ..task(7, 1, TaskState::Failed) };
        let node = Node {
            name: "n3".into(),
            status: NodeStatus::Down.into(),
            reason: "unheard".into(),
            ..Node::default()
        };
        let manager = Manager { name: "m1".into(), role: ManagerRole::Voter.into(), ..Manager::default() };
        let lines: Vec<String> = [
            (ChangeKind::Present, Object::Job(job.clone())),
            (ChangeKind::Updated, Object::Task(failed)),
            (ChangeKind::Updated, Object::Node(node)),
            (ChangeKind::Created, Object::Manager(manager)),
            (ChangeKind::Deleted, Object::Job(job)),
        ]
        .into_iter()
        .map(|(kind, object)| line(&change(kind, object), 48, None, NOW))
        .collect();
        assert_eq!(
            lines,
            [
                "      48  –                         job      present  default/web  version 8, active, 2/2",
                "      48  –                         task     updated  t7 web[1]  failed (exit 3) on n01: exit 3",
                "      48  –                         node     updated  n3  down: unheard",
                "      48  –                         manager  created  m1  voter",
                "      48  –                         job      deleted  default/web",
            ]
        );
    }

    #[test]
    fn programs_get_the_change_with_its_revision_and_time() {
        let value = document(
            &change(ChangeKind::Updated, Object::Task(task(7, 1, TaskState::Running))),
            48,
            Some(NOW),
        );
        assert_eq!((&value["revision"], &value["kind"]), (&json!("48"), &json!("CHANGE_KIND_UPDATED")));
        assert_eq!((&value["task"]["id"], &value["time"]), (&json!("t7"), &json!(NOW.to_string())));
    }
}
