use quorate_base::id::RequestId;
use quorate_model::{JobId, Revision, Term};

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn every_reason_has_a_distinct_word_an_exit_code_and_one_or_two_hints() {
    let mut words: Vec<&str> = Reason::ALL.iter().map(|r| r.as_str()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Reason::ALL.len());
    for reason in Reason::ALL.iter().copied() {
        assert_eq!(Reason::from_word(reason.as_str()), Some(reason));
        assert_ne!(reason.code(), Code::Ok);
        assert!((1..=9).contains(&reason.exit_code()), "{reason}");
        assert!((1..=2).contains(&reason.rule().hints.len()), "{reason}");
    }
    assert_eq!(Reason::from_word("ELSE"), None);
}

#[test]
fn every_reason_survives_the_wire_with_all_its_details() {
    for reason in Reason::ALL.iter().copied() {
        let mut sent = ApiError::new(reason, "what, where and why").with("job", "default/web");
        sent.violations.push("replicas", "must be less");
        sent = sent.after(Duration::from_millis(250));
        let status = Status::from(sent.clone());
        assert_eq!(status.code(), reason.code());
        assert_eq!(status.metadata().get(PUSHBACK).unwrap(), "250");
        assert_eq!(ApiError::from_status(&status), sent);
    }
}

#[test]
fn codes_and_exits_follow_the_catalogue() {
    for (reason, code, exit) in [
        (Reason::NoLeader, Code::Unavailable, 9),
        (Reason::EtagMismatch, Code::Aborted, 7),
        (Reason::JobInvalid, Code::InvalidArgument, 5),
        (Reason::SpecTooLarge, Code::InvalidArgument, 5),
        (Reason::JobNotFound, Code::NotFound, 6),
        (Reason::JobTypeChanged, Code::FailedPrecondition, 7),
        (Reason::CommitTimeout, Code::DeadlineExceeded, 9),
        (Reason::PermissionDenied, Code::PermissionDenied, 8),
        (Reason::Internal, Code::Internal, 1),
    ] {
        assert_eq!((reason.code(), reason.exit_code()), (code, exit), "{reason}");
    }
    assert_eq!(Reason::CommitTimeout.retry(), Retry::ClientSameRequestId);
    assert_eq!(Reason::EtagMismatch.retry(), Retry::CallerReReads);
    assert_eq!(Reason::Overloaded.retry(), Retry::HonourRetryInfo);
}

#[test]
fn hints_are_filled_in_and_left_out_where_a_part_is_unknown() {
    let error = ApiError::new(Reason::JobTypeChanged, "x").with("job", "default/web");
    assert_eq!(
        error.hints(),
        ["give the new job another name", "quorate stop --purge default/web    forget the old one first"]
    );
    assert_eq!(ApiError::new(Reason::NotLeader, "x").hints(), Vec::<String>::new());
}

#[test]
fn a_status_of_others_gets_the_reason_of_its_code() {
    let proxy = ApiError::from_status(&Status::unavailable("connection refused"));
    assert_eq!((proxy.reason, proxy.message.as_str()), (Reason::Unreachable, "connection refused"));
    let old = ApiError::from_status(&Status::unimplemented(""));
    assert_eq!(old.reason, Reason::Unsupported);

    let details = ErrorDetails::with_error_info("FROM_THE_FUTURE", DOMAIN, HashMap::new());
    let newer = ApiError::from_status(&Status::with_error_details(Code::InvalidArgument, "no", details));
    assert_eq!(newer.reason, Reason::ArgumentInvalid);
    assert_eq!(newer.metadata["reason"], "FROM_THE_FUTURE");
}

#[test]
fn a_status_stays_small_however_much_is_wrong() {
    let mut list = InvalidList::default();
    for i in 0..1000 {
        list.push(format!("containers.c{i}.image"), "x".repeat(1000));
    }
    let status = Status::from(ApiError::invalid(Reason::JobInvalid, "the job", list));
    assert!(status.details().len() + status.message().len() < 8 << 10);
    let back = ApiError::from_status(&status);
    let (last, shown) = back.violations.0.split_last().unwrap();
    assert_eq!(last.reason, format!("and {} more", 1000 - shown.len()));
    assert!(back.message.ends_with("(and 999 more)") || back.message.len() == MAX_MESSAGE);
}

#[test]
fn every_rejection_has_its_reason() {
    let (namespace, web) = (Name::default_namespace(), name("web"));
    let (stored, sent) = (Revision(9), Revision(7));
    let mut list = InvalidList::default();
    list.push("replicas", "too many");
    let job = |reason| (reason, Some(("job", "default/web")));
    for (rejection, (reason, detail)) in [
        (
            Rejection::JobNotFound { namespace: namespace.clone(), name: web.clone() },
            job(Reason::JobNotFound),
        ),
        (
            Rejection::JobTypeChanged {
                namespace: namespace.clone(),
                name: web.clone(),
                stored: "batch",
                sent: "service",
            },
            job(Reason::JobTypeChanged),
        ),
        (
            Rejection::EtagMismatch {
                namespace: namespace.clone(),
                name: web.clone(),
                stored,
                sent,
                by: "ci".into(),
                at: quorate_base::time::Timestamp::EPOCH,
            },
            (Reason::EtagMismatch, Some(("stored", "9"))),
        ),
        (Rejection::JobPurging { namespace: namespace.clone(), name: web.clone() }, job(Reason::JobPurging)),
        (Rejection::NotScalable { namespace, name: web }, job(Reason::NotScalable)),
        (Rejection::JobInvalid(list.clone()), (Reason::JobInvalid, None)),
        (Rejection::Invalid(list), (Reason::ArgumentInvalid, None)),
        (Rejection::Gone { what: "job", id: 3 }, (Reason::StateMoved, None)),
        (Rejection::WrongJobStatus { id: JobId(1), status: "stopped", why: "x" }, (Reason::StateMoved, None)),
        (Rejection::NodeNameTaken { name: name("n1") }, (Reason::NodeNameTaken, Some(("node", "n1")))),
        (Rejection::StaleFence { planned: Term(1), term: Term(2) }, (Reason::StateMoved, None)),
        (
            Rejection::RequestReused { id: RequestId::new("r1").unwrap() },
            (Reason::RequestIdReused, Some(("request_id", "r1"))),
        ),
        (Rejection::AlreadyInitialised, (Reason::AlreadyInitialised, None)),
    ] {
        let error = ApiError::from(rejection);
        assert_eq!(error.reason, reason, "{error}");
        assert!(!error.message.is_empty());
        if let Some((key, value)) = detail {
            assert_eq!(error.metadata.get(key).map(String::as_str), Some(value));
        }
    }
}

/// What the catalogue for users says of a reason: code, status of HTTP, exit code.
fn documented(reason: Reason) -> Option<(String, String, String)> {
    let book = include_str!("../../docs/errors.md");
    let row = book.lines().find(|line| line.starts_with(&format!("| {reason} |")))?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert!(cells.len() == 10 && !cells[7].is_empty() && !cells[8].is_empty(), "{row}");
    Some((cells[2].to_owned(), cells[3].to_owned(), cells[5].to_owned()))
}

#[test]
fn every_reason_is_documented_as_it_is() {
    for reason in Reason::ALL {
        let (code, http, exit) =
            documented(*reason).unwrap_or_else(|| panic!("{reason} is not in errors.md"));
        let spelt: String = format!("{:?}", reason.code()).to_lowercase();
        assert_eq!(code.replace('_', "").to_lowercase(), spelt, "{reason}");
        assert_eq!(http, crate::json::http_status(reason.code()).to_string(), "{reason}");
        assert_eq!(exit, reason.exit_code().to_string(), "{reason}");
    }
    let book = include_str!("../../docs/errors.md");
    let rows = book.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| reason"));
    assert_eq!(rows.count(), Reason::ALL.len(), "errors.md has a row that is no reason");
}
