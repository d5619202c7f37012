//! The watch hub: turns what the state machine tells into changes that watchers read.
//!
//! One task per manager converts every change once and keeps the newest in a [`ring`]. A watcher is a place in that
//! ring, so a slow one costs the others nothing: it falls out of the ring's end and is told so. Any manager has the
//! same changes at the same revisions, so a watch goes on at another one.

pub(crate) mod filter;
pub(crate) mod ring;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use prost::Message as _;
use quorate_base::{
    sync::lock,
    tasks::{TaskGroup, TaskKind},
};
use quorate_model::{Job, JobId, NodeId, Revision};
use quorate_raft::{Node, Update};
use quorate_state::{Change, Event, Object, State};
use quorate_wire::api::{self as pb, change};
use tokio::sync::{broadcast, watch};

use filter::Tags;
use ring::{Bounds, Entry, Missing, Ring, Tagged};

/// How much of the past is kept.
const BOUNDS: Bounds = Bounds { entries: 100_000, bytes: 64 << 20 };

/// The changes of the near past, for many readers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    ring: Arc<Mutex<Ring>>,
    head: watch::Sender<Revision>,
    /// The head whenever there are new changes: entries without any wake nobody.
    news: watch::Sender<Revision>,
}

impl Hub {
    /// Starts to collect. Call it as early as possible: what comes before is not known.
    pub(crate) fn start(node: &Node, group: &TaskGroup) -> Self {
        // In this order: what is applied in between comes twice, and is left out the second time.
        let updates = node.updates();
        let view = node.view();
        let base = view.applied().index;
        let ring = Arc::new(Mutex::new(Ring::new(base, BOUNDS)));
        let hub = Self { ring, head: watch::Sender::new(base), news: watch::Sender::new(base) };
        let (earlier, passing) = (BTreeMap::new(), BTreeMap::new());
        let feed = Feed { hub: hub.clone(), node: node.clone(), updates, before: view, earlier, passing };
        group.spawn(TaskKind::critical("watch hub"), feed.run());
        hub
    }

    /// At most `most` entries after `place`.
    ///
    /// # Errors
    /// [`Missing`]
    pub(crate) fn after(&self, place: Revision, most: usize) -> Result<Vec<Arc<Entry>>, Missing> {
        lock(&self.ring).after(place, most)
    }

    /// Every change up to here can be read; it grows.
    pub(crate) fn head(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// Grows when there are new changes to be read.
    pub(crate) fn news(&self) -> watch::Receiver<Revision> {
        self.news.subscribe()
    }

    /// The oldest place that can be read from.
    pub(crate) fn oldest(&self) -> Revision {
        lock(&self.ring).oldest()
    }
}

/// Feeds a hub.
struct Feed {
    hub: Hub,
    node: Node,
    updates: broadcast::Receiver<Update>,
    /// The state before the last round: it still knows the names of what is gone by now.
    before: State,
    /// Jobs that were told of in the last round, and in this one: they may have come and gone since.
    earlier: BTreeMap<JobId, Arc<Job>>,
    passing: BTreeMap<JobId, Arc<Job>>,
}

impl Feed {
    async fn run(mut self) -> Result<(), Infallible> {
        let mut applied = self.node.applied();
        loop {
            // Entries without changes move the head, too. Changes are told before their entry counts as applied, so
            // that all of them are in the queue by now.
            let reached = *applied.borrow_and_update();
            let view = self.node.view();
            let (mut closed, mut told) = (false, false);
            loop {
                match self.updates.try_recv() {
                    Ok(update) => {
                        told = true;
                        self.take(update);
                    }
                    Err(broadcast::error::TryRecvError::Empty) => break,
                    Err(broadcast::error::TryRecvError::Lagged(_)) => {
                        told = true;
                        self.restart();
                    }
                    Err(broadcast::error::TryRecvError::Closed) => {
                        closed = true;
                        break;
                    }
                }
            }
            let head = {
                let mut ring = lock(&self.hub.ring);
                ring.reach(reached);
                ring.head()
            };
            // What is told next was applied after this view, or is of a job that was told of in this round.
            self.before = view;
            self.earlier = std::mem::take(&mut self.passing);
            if told {
                self.hub.news.send_replace(head);
            }
            self.hub.head.send_if_modified(|known| std::mem::replace(known, head) != head);
            if closed || applied.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Changed { revision, events } => {
                let now = self.node.view();
                let time = now.now();
                for event in events.iter() {
                    if let Object::Job(job) = &event.object {
                        self.passing.insert(job.id, job.clone());
                    }
                }
                let passing = [&self.passing, &self.earlier];
                let names = Names { now: &now, before: &self.before, passing };
                let changes = events.iter().filter_map(|event| tagged(event, &names)).collect();
                lock(&self.hub.ring).push(Entry { revision, time, changes });
            }
            Update::Replaced { .. } => self.restart(),
        }
    }

    /// What happened meanwhile is not known change by change.
    fn restart(&mut self) {
        self.before = self.node.view();
        lock(&self.hub.ring).restart(self.before.applied().index);
    }
}

/// Who is who, also of what is gone by now.
pub(crate) struct Names<'a> {
    now: &'a State,
    before: &'a State,
    /// Jobs that came and went.
    passing: [&'a BTreeMap<JobId, Arc<Job>>; 2],
}

impl<'a> Names<'a> {
    fn job(&self, id: JobId) -> Option<&'a Arc<Job>> {
        let passing = || self.passing.iter().find_map(|jobs| jobs.get(&id));
        self.now.job(id).or_else(passing).or_else(|| self.before.job(id))
    }

    fn node(&self, id: NodeId) -> Option<&'a Arc<quorate_model::Node>> {
        self.now.node(id).or_else(|| self.before.node(id))
    }
}

/// The objects of a state, as a watcher's snapshot tells them.
pub(crate) struct Present<'a> {
    names: Names<'a>,
}

impl<'a> Present<'a> {
    /// Of a state; nothing passes by in it.
    pub(crate) fn of(state: &'a State, none: &'a BTreeMap<JobId, Arc<Job>>) -> Self {
        Self { names: Names { now: state, before: state, passing: [none, none] } }
    }

    /// What filters ask of the object; `None` for what is not watched.
    pub(crate) fn tags(&self, object: &Object) -> Option<Tags> {
        Tags::of(object, &self.names)
    }

    /// The object as clients see it.
    pub(crate) fn object(&self, object: &Object) -> Option<change::Object> {
        self::object(object, &self.names)
    }
}

/// A change as watchers get it.
fn tagged(event: &Event, names: &Names<'_>) -> Option<Tagged> {
    let tags = Tags::of(&event.object, names)?;
    let kind = match event.change {
        Change::Created => pb::ChangeKind::Created,
        Change::Updated => pb::ChangeKind::Updated,
        Change::Deleted => pb::ChangeKind::Deleted,
    };
    let change = pb::Change { kind: kind.into(), object: Some(object(&event.object, names)?) };
    Some(Tagged { tags, bytes: change.encoded_len(), change })
}

/// An object as clients see it.
fn object(object: &Object, names: &Names<'_>) -> Option<change::Object> {
    Some(match object {
        Object::Job(job) => change::Object::Job(pb::job(names.now, job)),
        Object::Task(task) => {
            let mut told = pb::task(names.now, task);
            if let Some(job) = names.job(task.job) {
                (told.namespace, told.job) = (job.namespace.to_string(), job.name.to_string());
            }
            if let Some(node) = task.node.and_then(|id| names.node(id)) {
                told.node = node.name.to_string();
            }
            change::Object::Task(told)
        }
        Object::Node(node) => change::Object::Node(pb::node(names.now, node)),
        // Its part in Raft is not part of the state.
        Object::Manager(manager) => {
            change::Object::Manager(pb::manager(manager, pb::ManagerRole::Unspecified, false, None))
        }
        Object::Settings(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobVersion, Slot};
    use quorate_state::{Actor, Command, Envelope, NewTasks, Position, apply};

    use super::*;

    /// A state with job `web` and one task of it.
    fn with_task() -> State {
        let container = quorate_wire::common::ContainerSpec {
            runtime: quorate_wire::common::Runtime::Fake.into(),
            ..Default::default()
        };
        let spec = pb::accept_spec(Some(pb::JobSpec {
            name: "web".to_owned(),
            kind: Some(pb::job_spec::Kind::Service(pb::ServiceSpec { replicas: 1 })),
            containers: [("app".to_owned(), container)].into(),
            ..pb::JobSpec::default()
        }));
        let run = NewTasks { first: Slot(0), count: 1, attempt: 0, not_before: Default::default() };
        let commands = [
            Command::ApplyJob { spec: Arc::new(spec.unwrap()), expect: None },
            Command::CreateTasks { job: JobId(0), version: JobVersion(1), groups: vec![run] },
        ];
        let mut state = State::new();
        for command in commands {
            let (proposed_at, actor) = (Default::default(), Actor::User("test".into()));
            let envelope = Envelope { proposed_at, fence: None, actor, request: None, trace: None, command };
            apply(&mut state, Position::default(), &envelope).outcome.unwrap();
        }
        state
    }

    #[test]
    fn what_is_gone_by_now_is_told_by_its_name() {
        let (state, empty, none) = (with_task(), State::new(), BTreeMap::new());
        let task = state.tasks().next().unwrap().clone();
        let event = Event { revision: Revision(9), change: Change::Deleted, object: Object::Task(task) };
        let passed = BTreeMap::from([(JobId(0), state.job(JobId(0)).unwrap().clone())]);
        for (what, before, passing) in [
            ("gone since the last round", &state, [&none, &none]),
            ("came and went in this round", &empty, [&passed, &none]),
            ("told of in the last round", &empty, [&none, &passed]),
        ] {
            let tagged = tagged(&event, &Names { now: &empty, before, passing }).unwrap();
            let job = tagged.tags.job.map(|(namespace, name)| format!("{namespace}/{name}"));
            assert_eq!(job.as_deref(), Some("default/web"), "{what}: filters ask for it");
            let Some(change::Object::Task(told)) = tagged.change.object else { panic!("{what}") };
            assert_eq!((told.namespace.as_str(), told.job.as_str()), ("default", "web"), "{what}");
        }
    }
}
