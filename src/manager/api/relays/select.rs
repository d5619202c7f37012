//! Which tasks' logs a reader means: pure.

use std::{collections::BTreeMap, sync::Arc};

use quorate_base::time::Timestamp;
use quorate_model::{Invalid, Job, JobId, Name, Task, TaskId, TaskState};
use quorate_state::State;
use quorate_wire::{
    agent::LogOrder,
    api::{self as pb, namespace},
    common::{moment, timestamp},
    status::{ApiError, Reason},
};

use crate::api::{find_task, invalid, name};

/// Most positions that a reader may resume from at once, and most tasks that are read at once.
pub(super) const MOST_TASKS: usize = 256;
/// Longest position.
const MOST_CURSOR: usize = 128;

/// What a reader asks for, checked.
#[derive(Debug, Clone)]
pub(super) struct Query {
    target: Target,
    pub(super) follow: bool,
    since: Option<Timestamp>,
    tail: Option<u32>,
    previous: bool,
    resume: BTreeMap<TaskId, String>,
    stream: pb::LogStream,
    include_ended: bool,
}

#[derive(Debug, Clone)]
enum Target {
    Task(String),
    Job(Name, Name),
}

/// One task to read, and how.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) task: Arc<Task>,
    pub(super) order: LogOrder,
}

impl Query {
    /// Checks a request.
    ///
    /// # Errors
    /// `ARGUMENT_INVALID` with the fields that are wrong.
    pub(super) fn read(request: &pb::ReadLogsRequest) -> Result<Self, ApiError> {
        let wrong = |path: &str, why: &str| invalid(Invalid::new(path, why));
        let target = match (request.task.as_str(), request.job.as_str()) {
            ("", "") => return Err(wrong("task", "give a task, or a job for all of its tasks")),
            ("", job) => Target::Job(namespace(&request.namespace)?, name("job", job)?),
            (task, "") => Target::Task(task.to_owned()),
            _ => return Err(wrong("job", "give a task or a job, not both")),
        };
        if request.previous && request.follow {
            return Err(wrong("previous", "what ended before cannot be followed"));
        }
        if request.resume.len() > MOST_TASKS {
            return Err(wrong("resume", &format!("more than {MOST_TASKS} positions")));
        }
        let mut resume = BTreeMap::new();
        for (i, position) in request.resume.iter().enumerate() {
            let task: TaskId = position.task.parse().map_err(invalid)?;
            if position.cursor.is_empty() || position.cursor.len() > MOST_CURSOR {
                return Err(wrong(&format!("resume[{i}].cursor"), "send back what a line gave"));
            }
            resume.insert(task, position.cursor.clone());
        }
        let stream = pb::LogStream::try_from(request.stream)
            .map_err(|_| wrong("stream", &format!("{} is unknown", request.stream)))?;
        Ok(Self {
            target,
            follow: request.follow,
            since: request.since.as_ref().map(moment),
            tail: request.tail,
            previous: request.previous,
            resume,
            stream,
            include_ended: request.include_ended,
        })
    }

    /// Whether one task is meant: its trouble is the call's.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.target, Target::Task(_))
    }

    /// The tasks to read now, by slot and age. Those of a whole job that do not exist yet may come later.
    ///
    /// # Errors
    /// The job or task is unknown, or has nothing to read.
    pub(super) fn sources(&self, view: &State) -> Result<Vec<Source>, ApiError> {
        let tasks = match &self.target {
            Target::Task(text) => {
                let task = find_task(view, text)?;
                if self.previous && never_restarted(&task) {
                    return Ok(vec![self.source(predecessor(view, &task)?, false)]);
                }
                vec![task]
            }
            Target::Job(namespace, name) => {
                let job = view.job_named(namespace, name).ok_or_else(|| {
                    ApiError::new(Reason::JobNotFound, format!("there is no job {namespace}/{name}"))
                        .with("job", format_args!("{namespace}/{name}"))
                })?;
                self.tasks_of(view, job)
            }
        };
        Ok(tasks.into_iter().map(|task| self.source(task, self.previous)).collect())
    }

    /// Those that live, or, when none does, the newest of each slot.
    fn tasks_of(&self, view: &State, job: &Job) -> Vec<Arc<Task>> {
        let all = || view.tasks_of(job.id).filter(|t| t.node.is_some());
        let live: Vec<_> =
            all().filter(|t| self.include_ended || !t.status.state.is_terminal()).cloned().collect();
        if !live.is_empty() || self.follow {
            return live;
        }
        // Ordered by slot, then by age: the last of each slot stays.
        let newest: BTreeMap<_, _> = all().map(|t| (t.slot, t.clone())).collect();
        newest.into_values().collect()
    }

    fn source(&self, task: Arc<Task>, previous: bool) -> Source {
        let cursor = self.resume.get(&task.id).cloned().unwrap_or_default();
        let order = LogOrder {
            task_id: task.id.0,
            follow: self.follow && !previous,
            since: self.since.map(timestamp),
            // Who resumes has had its tail.
            tail: self.tail.filter(|_| cursor.is_empty()),
            previous,
            cursor,
            without_stdout: self.stream == pb::LogStream::Stderr,
            without_stderr: self.stream == pb::LogStream::Stdout,
        };
        Source { task, order }
    }

    /// Whether more tasks may come that the reader wants.
    pub(super) fn awaits_more(&self, view: &State) -> bool {
        self.follow
            && match &self.target {
                Target::Task(_) => false,
                Target::Job(namespace, name) => view
                    .job_named(namespace, name)
                    .is_some_and(|job| job.status.wants_tasks() || has_live(view, job.id)),
            }
    }
}

fn has_live(view: &State, job: JobId) -> bool {
    view.tasks_of(job).any(|t| !t.status.state.is_terminal())
}

fn never_restarted(task: &Task) -> bool {
    task.status.restarts == 0 && task.restarts_asked == 0
}

fn predecessor(view: &State, task: &Task) -> Result<Arc<Task>, ApiError> {
    let before = |t: &&Arc<Task>| t.id < task.id && t.node.is_some() && t.status.state != TaskState::Orphaned;
    view.tasks_of_slot(task.job, task.slot).rev().find(before).cloned().ok_or_else(|| {
        let text = format!("task {} was never restarted and nothing ran in its slot before", task.id);
        ApiError::new(Reason::LogNotFound, text).with("task", task.id)
    })
}
