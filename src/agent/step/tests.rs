//! Each transition of the ladder, and that states never go down.

use super::*;
use proptest::prelude::*;
use quorate_model::RestartCondition;
use quorate_model::task::MAX_REASON;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn order(desired: TaskState) -> Order {
    Order { desired, removed: false, restart: RestartPolicy::default(), pull: true, restarts_asked: 0 }
}

fn record(state: TaskState) -> Record {
    let mut record = Record::accepted(Timestamp::from_millis(1));
    record.status.state = state;
    record
}

fn view(seen: Seen) -> View {
    View { seen: Some(seen), ..View::default() }
}

fn running() -> Seen {
    Seen::Running { instance: "c1".into(), since: Some(Timestamp::from_millis(7)) }
}

fn exited(code: i32) -> Seen {
    Seen::Exited(Exit { code: Some(code), ..Exit::default() })
}

fn fault(class: FaultClass) -> View {
    View { fault: Some(Fault { class, message: "no such image".to_owned() }), ..View::default() }
}

#[test]
fn the_ladder_up() {
    use TaskState::*;
    let pulled = View { pulled: true, ..view(Seen::Absent) };
    let table = [
        (Running, Accepted, View::default(), Accepted, Action::Inspect),
        (Running, Accepted, view(Seen::Absent), Preparing, Action::Pull),
        (Running, Preparing, pulled.clone(), Preparing, Action::Create),
        (Ready, Accepted, pulled, Preparing, Action::Create),
        (Ready, Preparing, view(Seen::Created), Ready, Action::Rest),
        (Running, Ready, view(Seen::Created), Starting, Action::Start),
        (Complete, Ready, view(Seen::Created), Starting, Action::Start),
        (Running, Starting, view(running()), Running, Action::AwaitExit),
        (Running, Accepted, view(running()), Running, Action::AwaitExit),
    ];
    for (desired, observed, view, next, action) in table {
        let got = step(&order(desired), &record(observed), &view, NOW);
        assert_eq!((got.record.status.state, got.action), (next, action), "{desired} {observed} {view:?}");
    }
}

#[test]
fn a_container_that_needs_no_image_is_created_at_once() {
    let order = Order { pull: false, ..order(TaskState::Running) };
    assert_eq!(step(&order, &record(TaskState::Accepted), &view(Seen::Absent), NOW).action, Action::Create);
}

#[test]
fn the_way_down() {
    use TaskState::*;
    let table = [
        (Shutdown, Running, running(), Running, Action::Stop),
        (Shutdown, Running, exited(143), Shutdown, Action::Rest),
        (Shutdown, Accepted, Seen::Absent, Shutdown, Action::Rest),
        (Shutdown, Ready, Seen::Created, Shutdown, Action::Rest),
        (Shutdown, Complete, exited(0), Complete, Action::Rest),
        (Shutdown, Failed, running(), Failed, Action::Stop),
        (Running, Shutdown, running(), Shutdown, Action::Stop),
        (Running, Orphaned, running(), Orphaned, Action::Stop),
        (Running, Complete, Seen::Absent, Complete, Action::Rest),
        (Remove, Running, running(), Running, Action::Stop),
        (Remove, Running, exited(143), Shutdown, Action::Remove),
        (Remove, Failed, exited(1), Failed, Action::Remove),
        (Remove, Shutdown, Seen::Absent, Shutdown, Action::Rest),
    ];
    for (desired, observed, seen, next, action) in table {
        let got = step(&order(desired), &record(observed), &view(seen.clone()), NOW);
        assert_eq!((got.record.status.state, got.action), (next, action), "{desired} {observed} {seen:?}");
    }
    let removed = Order { removed: true, ..order(TaskState::Running) };
    for (seen, action) in [
        (running(), Action::Stop),
        (exited(0), Action::Remove),
        (Seen::Created, Action::Remove),
        (Seen::Absent, Action::Forget),
    ] {
        assert_eq!(step(&removed, &record(TaskState::Running), &view(seen), NOW).action, action);
    }
}

#[test]
fn faults_before_starting_reject_and_after_it_fail() {
    use FaultClass::*;
    let never = RestartPolicy { condition: RestartCondition::Never, ..RestartPolicy::default() };
    let table = [
        (TaskState::Preparing, Permanent, TaskState::Rejected),
        (TaskState::Starting, Permanent, TaskState::Failed),
        (TaskState::Preparing, Transient, TaskState::Rejected),
        (TaskState::Starting, Transient, TaskState::Failed),
    ];
    for (observed, class, next) in table {
        let order = Order { restart: never, ..order(TaskState::Running) };
        let got = step(&order, &record(observed), &fault(class), NOW);
        assert_eq!(got.record.status.state, next, "{observed} {class:?}");
        assert_eq!(&*got.record.status.reason, "no such image");
    }
}

#[test]
fn a_transient_fault_is_tried_again_with_the_reason_shown() {
    let got =
        step(&order(TaskState::Running), &record(TaskState::Preparing), &fault(FaultClass::Transient), NOW);
    assert_eq!(got.action, Action::Wait(Duration::from_secs(2)));
    assert_eq!(got.record.status.state, TaskState::Preparing);
    assert_eq!(&*got.record.status.reason, "no such image; trying again in 2s (1 of 3)");
    assert_eq!(got.record.status.restarts, 0, "nothing ran, so nothing was restarted");
    let later = NOW.saturating_add(Duration::from_secs(2));
    assert_eq!(
        step(&order(TaskState::Running), &got.record, &view(Seen::Absent), later).action,
        Action::Pull
    );
}

#[test]
fn a_silent_runtime_changes_nothing_but_the_reason_of_what_does_not_run_yet() {
    for (observed, reason) in [(TaskState::Preparing, "no such image"), (TaskState::Running, "")] {
        let got = step(&order(TaskState::Running), &record(observed), &fault(FaultClass::Unavailable), NOW);
        assert_eq!((got.record.status.state, got.action), (observed, Action::BackOff));
        assert_eq!(&*got.record.status.reason, reason);
    }
    for class in [FaultClass::Unavailable, FaultClass::Transient, FaultClass::Permanent] {
        let got = step(&order(TaskState::Shutdown), &record(TaskState::Running), &fault(class), NOW);
        assert_eq!((got.record.status.state, got.action), (TaskState::Running, Action::BackOff), "{class:?}");
    }
}

/// Ends of a running container under each policy.
#[test]
fn ends_are_answered_by_the_policy() {
    use RestartCondition::*;
    use TaskState::*;
    let table = [
        (Any, 3, 0, Running, "exit 0, restarting in 2s (1 of 3)"),
        (Any, 3, 1, Running, "exit 1, restarting in 2s (1 of 3)"),
        (OnFailure, 3, 0, Complete, ""),
        (OnFailure, 3, 7, Running, "exit 7, restarting in 2s (1 of 3)"),
        (Never, 3, 0, Complete, ""),
        (Never, 3, 1, Failed, "exit 1"),
        (Any, 0, 0, Complete, ""),
        (Any, 0, 1, Failed, "exit 1"),
    ];
    for (condition, attempts, code, state, reason) in table {
        let restart = RestartPolicy { condition, attempts, ..RestartPolicy::default() };
        let order = Order { restart, ..order(TaskState::Running) };
        let mut up = record(Running);
        up.status.running_since = Some(Timestamp::from_millis(7));
        let got = step(&order, &up, &view(exited(code)), NOW).record.status;
        assert_eq!((got.state, &*got.reason), (state, reason), "{condition:?} {attempts} {code}");
        assert_eq!((got.exit_code, got.restarts), (Some(code), u32::from(state == Running)));
        assert_eq!(got.at, NOW);
        assert_eq!(
            got.running_since.is_none(),
            state == Running,
            "a task that waits for its restart is not up"
        );
    }
}

#[test]
fn restarts_double_their_wait_and_are_used_up_within_the_window() {
    let (order, mut record, mut now) = (order(TaskState::Running), record(TaskState::Running), NOW);
    for seconds in [2, 4, 8] {
        let got = step(&order, &record, &view(exited(1)), now);
        assert_eq!(got.action, Action::Wait(Duration::from_secs(seconds)));
        let early = step(&order, &got.record, &view(exited(1)), now.saturating_add(Duration::from_secs(1)));
        assert_eq!(early.action, Action::Wait(Duration::from_secs(seconds - 1)));
        assert_eq!(early.record, got.record, "a look at the wait changes nothing");
        now = now.saturating_add(Duration::from_secs(seconds));
        let due = step(&order, &got.record, &view(exited(1)), now);
        assert_eq!((due.action, due.record.status.state), (Action::Start, TaskState::Running));
        assert!(!due.record.status.is_up());
        let up = step(&order, &due.record, &view(running()), now);
        assert_eq!((&*up.record.status.reason, up.record.retry_at), ("", None));
        assert_eq!(up.record.status.running_since, Some(Timestamp::from_millis(7)));
        record = up.record;
    }
    assert_eq!(record.status.restarts, 3);
    let last = step(&order, &record, &view(exited(1)), now).record.status;
    assert_eq!((last.state, &*last.reason), (TaskState::Failed, "exit 1, all 3 restarts in 5m are used up"));
    let after = now.saturating_add(Duration::from_secs(300));
    let again = step(&order, &record, &view(exited(1)), after);
    assert_eq!(again.action, Action::Wait(Duration::from_secs(2)), "the window slid past all of them");
}

#[test]
fn the_memory_of_attempts_is_bounded_whatever_the_policy_allows() {
    let restart = RestartPolicy { attempts: u32::MAX, delay: Duration::ZERO, ..RestartPolicy::default() };
    let order = Order { restart, ..order(TaskState::Running) };
    let mut record = record(TaskState::Running);
    for _ in 0..MOST_REMEMBERED + 50 {
        record = step(&order, &record, &View { started: true, ..view(exited(1)) }, NOW).record;
        assert_eq!(record.status.state, TaskState::Running);
    }
    assert_eq!(record.recent.len(), MOST_REMEMBERED);
}

#[test]
fn what_vanished_after_its_start_counts_as_a_failure() {
    let got = step(&order(TaskState::Running), &record(TaskState::Running), &view(Seen::Absent), NOW);
    assert_eq!(&*got.record.status.reason, "its container is gone, restarting in 2s (1 of 3)");
    let due = NOW.saturating_add(Duration::from_secs(2));
    let pulled = View { pulled: true, ..view(Seen::Absent) };
    let again = step(&order(TaskState::Running), &got.record, &pulled, due);
    assert_eq!((again.action, again.record.status.state), (Action::Create, TaskState::Running));
}

#[test]
fn an_attempt_that_ends_at_once_uses_itself_up() {
    let order = order(TaskState::Running);
    let mut record = record(TaskState::Running);
    let mut now = NOW;
    for attempt in 1..=3 {
        let ended = View { started: attempt > 1, ..view(exited(1)) };
        let got = step(&order, &record, &ended, now);
        let Action::Wait(wait) = got.action else { panic!("attempt {attempt}: {:?}", got.action) };
        now = now.saturating_add(wait);
        let due = step(&order, &got.record, &view(exited(1)), now);
        assert_eq!(due.action, Action::Start);
        record = due.record;
    }
    let last = step(&order, &record, &View { started: true, ..view(exited(1)) }, now);
    assert_eq!(last.record.status.state, TaskState::Failed);
}

#[test]
fn a_container_that_somebody_else_restarted_is_reported_with_its_new_beginning() {
    let first = step(&order(TaskState::Running), &record(TaskState::Starting), &view(running()), NOW).record;
    let again = Seen::Running { instance: "c1".into(), since: Some(Timestamp::from_millis(9)) };
    let got = step(&order(TaskState::Running), &first, &view(again), NOW).record;
    assert_eq!(got.status.running_since, Some(Timestamp::from_millis(9)));
}

#[test]
fn a_container_that_ran_and_looks_new_counts_as_ended() {
    let got = step(&order(TaskState::Running), &record(TaskState::Running), &view(Seen::Created), NOW);
    assert_eq!(&*got.record.status.reason, "ended, and nobody saw how, restarting in 2s (1 of 3)");
    let due = step(
        &order(TaskState::Running),
        &got.record,
        &view(Seen::Created),
        NOW.saturating_add(Duration::from_secs(2)),
    );
    assert_eq!(due.action, Action::Start);
}

#[test]
fn an_end_that_nobody_watched_is_an_end() {
    let batch = RestartPolicy { condition: RestartCondition::OnFailure, ..RestartPolicy::default() };
    let order = Order { restart: batch, ..order(TaskState::Running) };
    for observed in [TaskState::Accepted, TaskState::Starting] {
        let got = step(&order, &record(observed), &view(exited(0)), NOW).record.status;
        assert_eq!((got.state, got.exit_code), (TaskState::Complete, Some(0)));
        let got = step(&order, &record(observed), &view(exited(3)), NOW).record.status;
        assert_eq!((got.exit_code, got.restarts), (Some(3), 1));
    }
}

#[test]
fn a_clock_set_back_neither_parks_a_task_nor_stretches_the_window() {
    let mut parked = record(TaskState::Running);
    parked.retry_at = Some(NOW.saturating_add(Duration::from_secs(86_400)));
    parked.recent = vec![NOW.saturating_add(Duration::from_secs(86_400))];
    let got = step(&order(TaskState::Running), &parked, &view(exited(1)), NOW);
    assert_eq!(got.action, Action::Wait(Duration::from_secs(60)));
    assert_eq!(got.record.recent, [NOW]);
}

#[test]
fn a_new_instance_is_reported_and_the_same_one_is_not() {
    let first = step(&order(TaskState::Running), &record(TaskState::Starting), &view(running()), NOW);
    assert_eq!(first.record.status.running_since, Some(Timestamp::from_millis(7)));
    let again = step(
        &order(TaskState::Running),
        &first.record,
        &view(running()),
        NOW.saturating_add(Duration::from_secs(9)),
    );
    assert_eq!(again.record, first.record);
    let other = Seen::Running { instance: "c2".into(), since: None };
    let other = step(&order(TaskState::Running), &first.record, &view(other), NOW);
    assert_eq!((&*other.record.status.instance, other.record.status.running_since), ("c2", Some(NOW)));
}

fn kinds(record: &Record) -> Vec<TaskEventKind> {
    record.status.events.iter().map(|event| event.kind).collect()
}

#[test]
fn a_life_is_told_in_events() {
    use TaskEventKind::*;
    let order = order(TaskState::Running);
    let mut record = Record::accepted(NOW);
    let killed = Exit { code: Some(137), cause: Cause::Signal(9), ..Exit::default() };
    let lacked = Exit { code: Some(137), cause: Cause::OutOfMemory, detail: "too little".to_owned() };
    let pulled = View { pulled: true, ..View::default() };
    let story = [
        (view(Seen::Absent), 0),
        (View { done: Some(Pulled), seen: Some(Seen::Absent), ..pulled.clone() }, 0),
        (View { done: Some(Created), ..view(Seen::Created) }, 0),
        (View { started: true, ..view(running()) }, 0),
        (view(running()), 0),
        (view(Seen::Exited(killed)), 0),
        (view(exited(137)), 2),
        (View { started: true, ..view(running()) }, 2),
        (view(Seen::Exited(lacked)), 3),
    ];
    for (view, seconds) in story {
        record = step(&order, &record, &view, NOW.saturating_add(Duration::from_secs(seconds))).record;
    }
    assert_eq!(
        kinds(&record),
        [Received, Pulling, Pulled, Created, Started, Killed, Restarting, Started, OutOfMemory, Restarting]
    );
    let events = &record.status.events;
    assert_eq!((events[5].code, events[8].code), (Some(9), Some(137)));
    assert_eq!(events[6].detail.as_deref(), Some("in 2s (1 of 3)"));
    assert_eq!(events[8].detail.as_deref(), Some("too little"));
    let stop = Order { desired: TaskState::Shutdown, ..order };
    let stopping = step(&stop, &record, &view(running()), NOW).record;
    let stopped = step(&stop, &stopping, &view(exited(0)), NOW).record;
    assert_eq!(kinds(&stopped)[8..], [Stopping, Exited]);
    assert_eq!(stopped.status.events.len(), 10, "the oldest have gone");
}

#[test]
fn events_alone_are_no_news_and_repeat_themselves_not() {
    let order = order(TaskState::Running);
    let first = step(&order, &record(TaskState::Starting), &view(running()), NOW).record;
    let later = NOW.saturating_add(Duration::from_secs(9));
    let adopting = View { adopting: true, ..view(running()) };
    let adopted = step(&order, &first, &adopting, later).record;
    assert_eq!(kinds(&adopted).last(), Some(&TaskEventKind::Adopted));
    assert!(!is_news(&first.status, &adopted.status) && adopted.status.at == first.status.at);
    let again = step(&order, &adopted, &adopting, later).record;
    assert_eq!(kinds(&again), kinds(&adopted), "of adoptions in a row one is kept");
    let silent = step(&order, &record(TaskState::Preparing), &fault(FaultClass::Unavailable), NOW).record;
    assert_eq!(kinds(&silent).last(), Some(&TaskEventKind::Fault));
    let still = step(&order, &silent, &fault(FaultClass::Unavailable), later).record;
    assert_eq!(still, silent, "a silence that lasts is told once");
}

#[test]
fn a_restart_that_was_asked_for_is_done_once_and_is_no_failure() {
    let asked = Order { restarts_asked: 1, ..order(TaskState::Running) };
    let up = step(&order(TaskState::Running), &record(TaskState::Starting), &view(running()), NOW).record;
    let stopping = step(&asked, &up, &view(running()), NOW);
    let status = &stopping.record.status;
    assert_eq!((stopping.action, status.state, status.is_up()), (Action::Stop, TaskState::Running, false));
    let again = step(&asked, &stopping.record, &view(running()), NOW);
    assert_eq!(
        (again.action, &again.record),
        (Action::Stop, &stopping.record),
        "also after a restart of the agent"
    );
    let down = step(&asked, &stopping.record, &view(exited(143)), NOW);
    let status = &down.record.status;
    assert_eq!((down.action, down.record.restarts_done), (Action::Start, 1));
    assert_eq!((status.restarts, status.exit_code, &*status.reason), (1, Some(143), "restarting as asked"));
    assert_eq!(down.record.recent, [], "it uses up no attempt");
    let unstarted = step(&asked, &down.record, &view(exited(143)), NOW);
    assert_eq!(unstarted.action, Action::Start, "an agent that died before the start makes up for it");
    let back = step(&asked, &down.record, &View { started: true, ..view(running()) }, NOW);
    assert_eq!(back.action, Action::AwaitExit);
    assert!(back.record.status.is_up() && back.record.status.reason.is_empty());
    assert_eq!(step(&asked, &back.record, &view(running()), NOW).record, back.record, "each number once");
    let crashed = step(&asked, &back.record, &view(exited(1)), NOW);
    assert_eq!(crashed.action, Action::Wait(Duration::from_secs(2)), "the first wait of the policy");
}

#[test]
fn a_restart_that_was_asked_for_ends_a_wait_and_does_not_revive() {
    let asked = Order { restarts_asked: 3, ..order(TaskState::Running) };
    let waiting = step(&order(TaskState::Running), &record(TaskState::Running), &view(exited(1)), NOW).record;
    let due = step(&asked, &waiting, &view(exited(1)), NOW);
    assert_eq!((due.action, due.record.restarts_done), (Action::Start, 3));
    let parked =
        Record { retry_at: Some(NOW.saturating_add(Duration::from_secs(9))), ..record(TaskState::Preparing) };
    let pulls = step(&asked, &parked, &view(Seen::Absent), NOW);
    assert_eq!((pulls.action, pulls.record.status.restarts), (Action::Pull, 0));
    let ended = step(&asked, &record(TaskState::Failed), &view(exited(1)), NOW);
    assert_eq!((ended.action, ended.record), (Action::Rest, record(TaskState::Failed)));
    let faulty = step(&asked, &record(TaskState::Running), &fault(FaultClass::Transient), NOW);
    assert_eq!((faulty.action, faulty.record.status.state), (Action::BackOff, TaskState::Running));
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let exit = (prop::option::of(-1_i32..4), "[a-z]{0,4}");
    prop_oneof![
        Just(Seen::Absent),
        Just(Seen::Created),
        ("[ab]", prop::option::of(0_u64..99)).prop_map(|(instance, since)| Seen::Running {
            instance: instance.into(),
            since: since.map(Timestamp::from_millis),
        }),
        exit.prop_map(|(code, detail)| Seen::Exited(Exit { code, detail, ..Exit::default() })),
    ]
}

fn any_view() -> impl Strategy<Value = View> {
    let class =
        prop::sample::select(vec![FaultClass::Unavailable, FaultClass::Transient, FaultClass::Permanent]);
    let fault = (class, "[a-z]{1,600}").prop_map(|(class, message)| Fault { class, message });
    (prop::option::of(any_seen()), any::<bool>(), any::<bool>(), prop::option::weighted(0.2, fault))
        .prop_map(|(seen, pulled, started, fault)| View { seen, pulled, started, fault, ..View::default() })
}

fn any_policy() -> impl Strategy<Value = RestartPolicy> {
    let condition = prop::sample::select(vec![
        RestartCondition::Any,
        RestartCondition::OnFailure,
        RestartCondition::Never,
    ]);
    (condition, 0_u32..5, 1_u64..60, 0_u64..5).prop_map(|(condition, attempts, window, delay)| {
        RestartPolicy {
            condition,
            attempts,
            window: Duration::from_secs(window),
            delay: Duration::from_secs(delay),
            max_delay: Duration::from_secs(8),
        }
    })
}

proptest! {
    /// Whatever is wanted, seen or broken, in any order and with a clock that jumps.
    #[test]
    fn observed_states_never_go_down_and_ends_are_final(
        policy in any_policy(),
        moves in prop::collection::vec((0_usize..5, any_view(), 0_u64..90_000, any::<bool>()), 1..80),
    ) {
        let desired = [TaskState::Ready, TaskState::Running, TaskState::Complete, TaskState::Shutdown, TaskState::Remove];
        let mut order = Order { desired: TaskState::Ready, removed: false, restart: policy, pull: true, restarts_asked: 0 };
        let mut record = Record::accepted(NOW);
        for (want, view, millis, removed) in moves {
            order.desired = order.desired.max(desired[want.min(2)]).max(if millis < 900 { desired[want] } else { TaskState::Ready });
            order.removed |= removed && millis < 300;
            let now = Timestamp::from_millis(960_000 + millis);
            let got = step(&order, &record, &view, now);
            let (before, after) = (&record.status, &got.record.status);
            prop_assert!(after.state >= before.state);
            prop_assert!(after.state.may_be_reported());
            prop_assert!(after.reason.len() <= MAX_REASON);
            prop_assert!(got.record.recent.len() <= policy.attempts as usize);
            if before.state.is_terminal() {
                prop_assert_eq!(&got.record.status, before);
                prop_assert!(!matches!(got.action, Action::Pull | Action::Create | Action::Start | Action::AwaitExit | Action::Wait(_)));
            }
            if let Action::Wait(wait) = got.action {
                prop_assert!(wait <= policy.max_delay);
                prop_assert!(got.record.retry_at.is_some());
            }
            if after.state.is_terminal() && !before.state.is_terminal() {
                let runs = matches!(view.seen, Some(Seen::Running { .. })) && view.fault.is_none();
                prop_assert!(!runs, "ended while it runs");
            }
            record = got.record;
        }
    }
}
