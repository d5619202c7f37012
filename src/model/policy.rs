//! What happens when a container ends: restarts on the node, rescheduling by the leader.

use std::time::Duration;

use crate::InvalidList;

/// Which ends of a container are answered by a new start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RestartCondition {
    /// Whatever the exit code was; what a service wants.
    #[default]
    Any,
    /// Only a non-zero exit; what a batch wants.
    OnFailure,
    /// Never.
    Never,
}

/// Restarts by the agent, in place, also while no manager can be reached (after Nomad's `restart`).
///
/// A task whose attempts within the window are used up ends as failed; the
/// leader then answers by its [`ReschedulePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Which ends count.
    pub condition: RestartCondition,
    /// Restarts in place within `window` before the task is given up.
    pub attempts: u32,
    /// Length of the sliding window in which attempts are counted.
    pub window: Duration,
    /// Wait before the first restart; doubles with each further one in the window.
    pub delay: Duration,
    /// Longest wait.
    pub max_delay: Duration,
}

impl Default for RestartPolicy {
    /// Three restarts in five minutes, from 2 s doubling up to 1 min.
    fn default() -> Self {
        Self {
            condition: RestartCondition::Any,
            attempts: 3,
            window: Duration::from_secs(300),
            delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(60),
        }
    }
}

/// Replacement of an ended task by the leader, possibly on another node.
///
/// The wait doubles with each replacement in a row; a replacement that ran
/// longer than `max_delay` starts the row anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReschedulePolicy {
    /// Replacements in a row; `None` = without end.
    pub attempts: Option<u32>,
    /// Wait before the first replacement.
    pub delay: Duration,
    /// Longest wait.
    pub max_delay: Duration,
}

impl Default for ReschedulePolicy {
    /// Without end, from 5 s doubling up to 10 min.
    fn default() -> Self {
        Self { attempts: None, delay: Duration::from_secs(5), max_delay: Duration::from_secs(600) }
    }
}

impl ReschedulePolicy {
    /// The wait before replacement number `attempt` (from 1) of a row: capped doubling.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Duration {
        doubling(self.delay, self.max_delay, attempt)
    }

    /// Whether replacement number `attempt` (from 1) is still allowed.
    #[must_use]
    pub fn allows(&self, attempt: u32) -> bool {
        self.attempts.is_none_or(|most| attempt <= most)
    }
}

impl RestartPolicy {
    /// The wait before restart number `attempt` (from 1) within the window.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Duration {
        doubling(self.delay, self.max_delay, attempt)
    }

    /// Whether an end with `failure` is one that asks for a new start.
    #[must_use]
    pub fn covers(&self, failure: bool) -> bool {
        match self.condition {
            RestartCondition::Any => true,
            RestartCondition::OnFailure => failure,
            RestartCondition::Never => false,
        }
    }
}

fn doubling(first: Duration, most: Duration, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(31);
    first.saturating_mul(1u32 << doublings.min(30)).min(most)
}

/// Longest of any configured wait: a week.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

pub(crate) fn check(restart: &RestartPolicy, reschedule: &ReschedulePolicy, out: &mut InvalidList) {
    for (path, value) in [
        ("restart.window", restart.window),
        ("restart.delay", restart.delay),
        ("restart.maxDelay", restart.max_delay),
        ("reschedule.delay", reschedule.delay),
        ("reschedule.maxDelay", reschedule.max_delay),
    ] {
        if value > MAX_WAIT {
            out.push(path, "longer than a week");
        }
    }
    if restart.delay > restart.max_delay {
        out.push("restart.delay", "longer than restart.maxDelay");
    }
    if reschedule.delay > reschedule.max_delay {
        out.push("reschedule.delay", "longer than reschedule.maxDelay");
    }
    if restart.attempts > 0 && restart.window.is_zero() {
        out.push("restart.window", "must not be zero while restart.attempts is above zero");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let policy = ReschedulePolicy::default();
        let seconds: Vec<u64> = (1..=9).map(|n| policy.wait(n).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(policy.wait(u32::MAX).as_secs(), 600);
    }

    #[test]
    fn conditions_cover_what_they_say() {
        let with = |condition| RestartPolicy { condition, ..RestartPolicy::default() };
        assert!(with(RestartCondition::Any).covers(false));
        assert!(!with(RestartCondition::OnFailure).covers(false));
        assert!(with(RestartCondition::OnFailure).covers(true));
        assert!(!with(RestartCondition::Never).covers(true));
    }
}
