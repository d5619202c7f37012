//! What a watcher wants to see: pure.

use std::{collections::BTreeMap, sync::Arc};

use quorate_model::{Invalid, InvalidList, JobSpec, Name, Selector, TaskId};
use quorate_state::Object;

use super::Names;
use quorate_wire::{
    api::{self as pb, namespace},
    status::{ApiError, Reason},
};

/// Whose labels count for an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Labels {
    /// It has none.
    #[default]
    None,
    /// Those of the job.
    OfJob(Arc<JobSpec>),
    /// Those of the node.
    OfNode(Arc<quorate_model::Node>),
}

impl Labels {
    fn get(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::None => None,
            Self::OfJob(spec) => Some(&spec.labels),
            Self::OfNode(node) => Some(&node.facts.labels),
        }
    }
}

/// What filters ask of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tags {
    pub(crate) kind: pb::ObjectKind,
    /// Namespace and name of the job.
    pub(crate) job: Option<(Name, Name)>,
    pub(crate) task: Option<TaskId>,
    pub(crate) node: Option<Name>,
    pub(crate) labels: Labels,
}

impl Tags {
    /// Of an object; `None` for what is not watched.
    pub(super) fn of(object: &Object, names: &Names<'_>) -> Option<Self> {
        Some(match object {
            Object::Job(job) => Self {
                kind: pb::ObjectKind::Job,
                job: Some((job.namespace.clone(), job.name.clone())),
                labels: job.spec().map_or(Labels::None, |spec| Labels::OfJob(spec.clone())),
                ..Self::default()
            },
            Object::Task(task) => {
                let job = names.job(task.job);
                let node = task.node.and_then(|id| names.node(id));
                let spec = job.and_then(|job| job.specs.get(&task.version).or_else(|| job.spec()));
                Self {
                    kind: pb::ObjectKind::Task,
                    job: job.map(|job| (job.namespace.clone(), job.name.clone())),
                    task: Some(task.id),
                    node: node.map(|node| node.name.clone()),
                    labels: spec.map_or(Labels::None, |spec| Labels::OfJob(spec.clone())),
                }
            }
            Object::Node(node) => Self {
                kind: pb::ObjectKind::Node,
                node: Some(node.name.clone()),
                labels: Labels::OfNode(node.clone()),
                ..Self::default()
            },
            Object::Manager(_) => Self { kind: pb::ObjectKind::Manager, ..Self::default() },
            Object::Settings(_) => return None,
        })
    }
}

/// A watcher's wish, checked. All parts must hold.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    kinds: Vec<pb::ObjectKind>,
    namespace: Option<Name>,
    job: Option<Name>,
    task: Option<TaskId>,
    node: Option<Name>,
    selector: Option<Selector>,
}

impl Filter {
    /// Reads a request.
    ///
    /// # Errors
    /// `ARGUMENT_INVALID` with all fields that are wrong.
    pub(crate) fn read(request: &pb::WatchRequest) -> Result<Self, ApiError> {
        let mut wrong = InvalidList::default();
        let mut kinds = Vec::new();
        for (i, kind) in request.kinds.iter().enumerate() {
            match pb::ObjectKind::try_from(*kind) {
                Ok(pb::ObjectKind::Unspecified) | Err(_) => {
                    wrong.push(
                        format!("kinds[{i}]"),
                        format!("{kind} is unknown: job, task, node or manager"),
                    );
                }
                Ok(kind) => kinds.push(kind),
            }
        }
        let mut name = |path: &str, text: &str| match text {
            "" => None,
            text => Name::parse(path, text).map_err(|invalid| wrong.0.push(invalid)).ok(),
        };
        let (job, node) = (name("job", &request.job), name("node", &request.node));
        let task = match request.task.as_str() {
            "" => None,
            text => {
                text.parse().map_err(|_| wrong.push("task", format!("{text:?} is no task id like t42"))).ok()
            }
        };
        let selector = match request.selector.as_str() {
            "" => None,
            text => Selector::parse("selector", text).map_err(|invalid: Invalid| wrong.0.push(invalid)).ok(),
        };
        // A job without a namespace is one of the default namespace; else all of them are meant.
        let all = request.namespace.is_empty() && job.is_none();
        let namespace = if all { None } else { Some(namespace(&request.namespace)?) };
        if !wrong.0.is_empty() {
            return Err(ApiError::invalid(Reason::ArgumentInvalid, "the request", wrong));
        }
        Ok(Self { kinds, namespace, job, task, node, selector })
    }

    /// Whether the watcher wants the object.
    pub(crate) fn takes(&self, tags: &Tags) -> bool {
        let same = |wanted: &Option<Name>, has: Option<&Name>| wanted.is_none() || wanted.as_ref() == has;
        (self.kinds.is_empty() || self.kinds.contains(&tags.kind))
            && same(&self.namespace, tags.job.as_ref().map(|(namespace, _)| namespace))
            && same(&self.job, tags.job.as_ref().map(|(_, name)| name))
            && (self.task.is_none() || self.task == tags.task)
            && same(&self.node, tags.node.as_ref())
            && self
                .selector
                .as_ref()
                .is_none_or(|selector| tags.labels.get().is_some_and(|labels| selector.matches(labels)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(request: pb::WatchRequest) -> Filter {
        Filter::read(&request).unwrap()
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn filters_leave_out_what_they_mean_nothing_to() {
        let task = Tags {
            kind: pb::ObjectKind::Task,
            job: Some((name("default"), name("web"))),
            task: Some(TaskId(4)),
            node: Some(name("n1")),
            labels: Labels::None,
        };
        let node = Tags { kind: pb::ObjectKind::Node, node: Some(name("n1")), ..Tags::default() };
        let manager = Tags { kind: pb::ObjectKind::Manager, ..Tags::default() };
        let table = [
            (pb::WatchRequest::default(), [true, true, true]),
            (pb::WatchRequest { kinds: vec![3], ..Default::default() }, [false, true, false]),
            (pb::WatchRequest { namespace: "default".into(), ..Default::default() }, [true, false, false]),
            (pb::WatchRequest { job: "web".into(), ..Default::default() }, [true, false, false]),
            (pb::WatchRequest { job: "web".into(), namespace: "x".into(), ..Default::default() }, [false; 3]),
            (pb::WatchRequest { task: "t4".into(), ..Default::default() }, [true, false, false]),
            (pb::WatchRequest { node: "n1".into(), ..Default::default() }, [true, true, false]),
            (pb::WatchRequest { selector: "a=b".into(), ..Default::default() }, [false; 3]),
        ];
        for (request, wanted) in table {
            let filter = filter(request.clone());
            assert_eq!([&task, &node, &manager].map(|tags| filter.takes(tags)), wanted, "{request:?}");
        }
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let request = pb::WatchRequest {
            kinds: vec![1, 0, 77],
            job: "No Name".into(),
            task: "x42".into(),
            selector: "=".into(),
            ..Default::default()
        };
        let error = Filter::read(&request).unwrap_err();
        let paths: Vec<_> = error.violations.0.iter().map(|v| v.path.as_str()).collect();
        assert_eq!(error.reason, Reason::ArgumentInvalid);
        assert_eq!(&paths[..4], ["kinds[1]", "kinds[2]", "job", "task"]);
        assert!(paths[4].starts_with("selector"), "{paths:?}");
    }
}
