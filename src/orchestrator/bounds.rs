//! Bounded commands: no log entry grows with the cluster.

use quorate_base::time::Timestamp;
use quorate_model::{JobId, JobVersion, Slot, TaskId, TaskState};
use quorate_state::{Command, NewTasks};

/// Most tasks that one command creates.
pub const MAX_CREATED: usize = 10_000;
/// Most task ids that one command lists.
pub const MAX_LISTED: usize = 10_000;
/// Most placements of one command.
pub const MAX_PLACED: usize = 5_000;
/// Most tasks that one pass creates per job, or places; the next pass goes on.
pub const MAX_PASS: usize = 50_000;

/// A task to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Birth {
    pub(crate) slot: Slot,
    pub(crate) attempt: u32,
    pub(crate) not_before: Timestamp,
}

/// `CreateTasks` commands in which equal neighbours share a group.
pub(crate) fn create(
    job: JobId,
    version: JobVersion,
    mut births: Vec<Birth>,
) -> impl Iterator<Item = Command> {
    births.sort_unstable();
    births.truncate(MAX_PASS);
    let chunks: Vec<Vec<NewTasks>> = births.chunks(MAX_CREATED).map(groups).collect();
    chunks.into_iter().map(move |groups| Command::CreateTasks { job, version, groups })
}

fn groups(births: &[Birth]) -> Vec<NewTasks> {
    let neighbours = |a: &Birth, b: &Birth| {
        (a.attempt, a.not_before) == (b.attempt, b.not_before) && a.slot.0.checked_add(1) == Some(b.slot.0)
    };
    births
        .chunk_by(neighbours)
        .filter_map(|run| {
            let first = run.first()?;
            Some(NewTasks {
                first: first.slot,
                count: u32::try_from(run.len()).ok()?,
                attempt: first.attempt,
                not_before: first.not_before,
            })
        })
        .collect()
}

/// `SetDesired` commands over tasks.
pub(crate) fn desire(desired: TaskState, tasks: &[TaskId]) -> impl Iterator<Item = Command> + '_ {
    tasks.chunks(MAX_LISTED).map(move |tasks| Command::SetDesired { desired, tasks: tasks.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_share_a_group() {
        let birth = |slot, attempt| Birth { slot: Slot(slot), attempt, not_before: Timestamp::EPOCH };
        let births = vec![birth(5, 0), birth(0, 0), birth(1, 0), birth(2, 1), birth(3, 1)];
        let commands: Vec<_> = create(JobId(1), JobVersion(1), births).collect();
        let [Command::CreateTasks { groups, .. }] = &commands[..] else { panic!("{commands:?}") };
        let runs: Vec<_> = groups.iter().map(|g| (g.first.0, g.count, g.attempt)).collect();
        assert_eq!(runs, [(0, 2, 0), (2, 2, 1), (5, 1, 0)]);
    }

    #[test]
    fn commands_and_passes_are_bounded() {
        let births = (0..200_000)
            .map(|slot| Birth { slot: Slot(slot), attempt: 0, not_before: Timestamp::EPOCH })
            .collect();
        let commands: Vec<_> = create(JobId(1), JobVersion(1), births).collect();
        assert_eq!(commands.len(), MAX_PASS / MAX_CREATED);
        for command in commands {
            let Command::CreateTasks { groups, .. } = command else { panic!("another command") };
            assert_eq!(groups.iter().map(|g| g.count as usize).sum::<usize>(), MAX_CREATED);
        }
        let tasks: Vec<_> = (0..25_000).map(TaskId).collect();
        assert_eq!(desire(TaskState::Shutdown, &tasks).count(), 3);
    }
}
