//! What the engine says of a container.

use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as Status};
use quorate_base::Timestamp;
use quorate_model::StopPolicy;

use crate::runtime::by_signal;
use crate::step::{Cause, Exit, Fault, Seen};

/// Exit code of what was ended by SIGKILL.
const KILLED: i64 = 137;

/// A container as inspected; `lacked_memory`: that it ran out of memory is known from elsewhere.
///
/// # Errors
/// Unavailable: between two states, or in one that nobody knows.
pub(super) fn seen(container: &ContainerInspectResponse, lacked_memory: bool) -> Result<Seen, Fault> {
    let state = container.state.as_ref();
    match state.and_then(|state| state.status) {
        Some(Status::CREATED) => Ok(Seen::Created),
        Some(Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING) => Ok(Seen::Running {
            instance: container.id.as_deref().unwrap_or_default().into(),
            since: state.and_then(|state| moment(state.started_at.as_deref()?)),
        }),
        Some(Status::EXITED | Status::DEAD) => {
            Ok(Seen::Exited(state.map(|state| exit(state, lacked_memory)).unwrap_or_default()))
        }
        Some(Status::REMOVING) => Err(Fault::unavailable("the container is just being removed")),
        Some(Status::EMPTY) | None => {
            Err(Fault::unavailable("the Docker engine does not say how the container is"))
        }
    }
}

/// Whether it ended as one that ran out of memory does, and the engine does not say that it did.
pub(super) fn may_have_lacked_memory(container: &ContainerInspectResponse) -> bool {
    let limited = container.host_config.as_ref().and_then(|host| host.memory).is_some_and(|bytes| bytes > 0);
    let state = container.state.as_ref();
    limited && state.is_some_and(|state| state.exit_code == Some(KILLED) && state.oom_killed != Some(true))
}

fn exit(state: &ContainerState, lacked_memory: bool) -> Exit {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok());
    if state.oom_killed == Some(true) || (lacked_memory && state.exit_code == Some(KILLED)) {
        let detail = "killed for lack of memory: raise its memory limit".to_owned();
        return Exit { code, detail, cause: Cause::OutOfMemory };
    }
    match code {
        // The engine, like shells, adds 128 to the number of the signal.
        Some(code @ 129..=159) => by_signal(code - 128),
        _ => Exit { code, detail: state.error.clone().unwrap_or_default(), ..Exit::default() },
    }
}

/// How the container was meant to be stopped when it was created.
pub(super) fn stop_policy(container: &ContainerInspectResponse) -> StopPolicy {
    let default = StopPolicy::default();
    let config = container.config.as_ref();
    let signal = config.and_then(|config| config.stop_signal.clone()).filter(|signal| !signal.is_empty());
    let grace = config.and_then(|config| u64::try_from(config.stop_timeout?).ok()).map(Duration::from_secs);
    StopPolicy { signal: signal.unwrap_or(default.signal), grace: grace.unwrap_or(default.grace) }
}

/// Reads the engine's moments: `2026-11-30T22:10:00.123456789Z`, always UTC. Its "never", in the year 1, is `None`.
fn moment(text: &str) -> Option<Timestamp> {
    let (seconds, nanos) = instant(text)?;
    Some(Timestamp::from_millis(seconds * 1_000 + u64::from(nanos / 1_000_000)))
}

/// Seconds since 1970, and nanoseconds.
pub(super) fn instant(text: &str) -> Option<(u64, u32)> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    if year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let seconds =
        ((days_before(year, month) + day.checked_sub(1)?) * 24 + hour) * 3_600 + minute * 60 + second;
    Some((seconds, nanos))
}

/// Days from 1970-01-01 to the first of the month.
fn days_before(year: u64, month: u64) -> u64 {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = leaps(year) > leaps(year - 1);
    let days = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let index = usize::try_from(month - 1).unwrap_or(0);
    days + BEFORE_MONTH.get(index).copied().unwrap_or(0) + u64::from(is_leap && month > 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ContainerConfig;
    use proptest::prelude::*;

    fn inspected(state: ContainerState) -> ContainerInspectResponse {
        ContainerInspectResponse { id: Some("c1".to_owned()), state: Some(state), ..Default::default() }
    }

    #[test]
    fn states_are_read() {
        let state =
            |status| ContainerState { status: Some(status), exit_code: Some(0), ..Default::default() };
        assert_eq!(seen(&inspected(state(Status::CREATED)), false), Ok(Seen::Created));
        assert_eq!(
            seen(&inspected(state(Status::EXITED)), false),
            Ok(Seen::Exited(Exit { code: Some(0), ..Exit::default() }))
        );
        assert!(seen(&inspected(state(Status::REMOVING)), false).is_err());
        let started_at = Some("2026-11-30T22:10:00.250999Z".to_owned());
        let running = ContainerState { started_at, ..state(Status::PAUSED) };
        let since = Some(Timestamp::from_millis(1_796_076_600_250));
        assert_eq!(seen(&inspected(running), false), Ok(Seen::Running { instance: "c1".into(), since }));
    }

    #[test]
    fn ends_say_more_than_a_code() {
        let end = |code, oom, error: &str| {
            let error = Some(error.to_owned());
            exit(
                &ContainerState { exit_code: Some(code), oom_killed: Some(oom), error, ..Default::default() },
                false,
            )
        };
        assert_eq!(end(3, false, ""), Exit { code: Some(3), ..Exit::default() });
        assert_eq!(end(137, false, "").detail, "killed by SIGKILL");
        assert_eq!(
            (end(137, false, "").cause, end(137, true, "").cause),
            (Cause::Signal(9), Cause::OutOfMemory)
        );
        assert_eq!(end(137, true, "").detail, "killed for lack of memory: raise its memory limit");
        assert_eq!(end(255, false, "broken").detail, "broken");
        let late = ContainerState { exit_code: Some(137), ..Default::default() };
        assert_eq!(exit(&late, true).detail, "killed for lack of memory: raise its memory limit");
        let other = ContainerState { exit_code: Some(1), ..Default::default() };
        assert_eq!(exit(&other, true).detail, "", "a child of it was killed, and it ended otherwise");
    }

    #[test]
    fn the_policy_of_creation_is_found_again() {
        let config = ContainerConfig {
            stop_signal: Some("SIGINT".to_owned()),
            stop_timeout: Some(3),
            ..ContainerConfig::default()
        };
        let container = ContainerInspectResponse { config: Some(config), ..Default::default() };
        let policy = StopPolicy { signal: "SIGINT".to_owned(), grace: Duration::from_secs(3) };
        assert_eq!(stop_policy(&container), policy);
        assert_eq!(stop_policy(&ContainerInspectResponse::default()), StopPolicy::default());
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "0001-01-01T00:00:00Z",
            "",
            "2026-13-01T00:00:00Z",
            "2026-11-30",
            "2026-11-30T22:10Z",
            "2026-11-00T0:0:0Z",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn moments_read_back(millis in 0_u64..253_402_300_800_000) {
            let at = Timestamp::from_millis(millis);
            prop_assert_eq!(moment(&at.to_string()), Some(at));
        }
    }
}
