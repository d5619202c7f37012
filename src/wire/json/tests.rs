use std::time::Duration;

use prost_types::FileDescriptorSet;
use tonic::{Code, Status};

use super::*;
use crate::{PUBLIC_DESCRIPTORS, api};

#[test]
fn every_call_of_the_public_services_is_in_the_table() {
    let set = FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).unwrap();
    let mut described = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                described.push((path, method.client_streaming(), method.server_streaming()));
            }
        }
    }
    described.sort();
    let table: Vec<_> =
        METHODS.iter().map(|m| (m.path.to_owned(), m.client_streams, m.server_streams)).collect();
    assert!(table.len() >= 11);
    assert_eq!(table, described);
    for known in METHODS {
        assert_eq!(method(known.path).unwrap().path, known.path);
        if !known.client_streams {
            assert!(known.request(b"{}").unwrap().is_empty(), "{}", known.path);
        }
        assert_eq!(known.response(b"").unwrap(), b"{}", "{}", known.path);
    }
    assert!(method("/quorate.api.v1.JobService/Nothing").is_none());
}

#[test]
fn a_request_is_the_same_message_in_both_encodings() {
    let call = method("/quorate.api.v1.JobService/ScaleJob").unwrap();
    // Both spellings of a name are JSON of proto3.
    for text in [
        r#"{"name":"web","replicas":3,"requestId":"r"}"#,
        r#"{"name":"web","replicas":"3","request_id":"r"}"#,
    ] {
        let sent = api::ScaleJobRequest::decode(call.request(text.as_bytes()).unwrap()).unwrap();
        assert_eq!((sent.name.as_str(), sent.replicas, sent.request_id.as_str()), ("web", 3, "r"), "{text}");
    }
}

#[test]
fn bad_json_says_what_and_where() {
    let call = method("/quorate.api.v1.JobService/ApplyJob").unwrap();
    let table: [(&str, Reason, &str, &str); 7] = [
        (r#"{"spec":{"nmae":"web"}}"#, Reason::UnknownField, "nmae", "unknown field `nmae`"),
        (
            r#"{"spec":{"name":7}}"#,
            Reason::ArgumentInvalid,
            "",
            "invalid type: integer `7`, expected a string",
        ),
        (r#"{"spec":{"priority":-1}}"#, Reason::ArgumentInvalid, "", "line 1 column"),
        (r#"{"etag":"a","etag":"b"}"#, Reason::ArgumentInvalid, "", "duplicate field"),
        (r#"{"etag":"a"} x"#, Reason::ArgumentInvalid, "", "trailing characters"),
        (r#"{"etag""#, Reason::ArgumentInvalid, "", "EOF"),
        ("[]", Reason::ArgumentInvalid, "", "invalid"),
    ];
    for (text, reason, field, says) in table {
        let error = call.request(text.as_bytes()).unwrap_err();
        assert_eq!(error.reason, reason, "{text}: {error}");
        assert!(error.message.contains(says), "{text}: {error}");
        assert_eq!(error.violations.0.first().unwrap().path, field, "{text}");
    }
    assert!(call.request(b" \n").unwrap_err().message.contains("empty"));
    let deep = format!(r#"{{"spec":{}"#, "[".repeat(100_000));
    assert_eq!(call.request(deep.as_bytes()).unwrap_err().reason, Reason::ArgumentInvalid);
    let garbage = call.response(b"\xff").unwrap_err();
    assert_eq!(garbage.reason, Reason::Internal);
}

#[test]
fn a_failure_carries_every_detail_in_both_forms() {
    let error = ApiError::invalid(Reason::EtagMismatch, "the job", Invalid::new("etag", "is old").into())
        .with("job", "default/web")
        .after(Duration::from_millis(100));
    let status = Status::from(error);
    let failure = Failure::of(&status);
    assert_eq!((failure.http, failure.retry_after), (409, Some(1)));
    assert_eq!(failure.body["code"], "aborted");
    assert_eq!(failure.body["message"], "the job is not valid: etag: is old");
    let details = failure.body["details"].as_array().unwrap();
    let of = |name: &str| details.iter().find(|d| d["type"] == name).unwrap();
    assert_eq!(of("google.rpc.ErrorInfo")["debug"]["reason"], "ETAG_MISMATCH");
    assert_eq!(of("google.rpc.ErrorInfo")["debug"]["metadata"]["job"], "default/web");
    assert_eq!(of("google.rpc.BadRequest")["debug"]["fieldViolations"][0]["field"], "etag");
    assert_eq!(of("google.rpc.RetryInfo")["debug"]["retryDelay"], "0.100s");
    let value = of("google.rpc.ErrorInfo")["value"].as_str().unwrap();
    let bytes = base64::Engine::decode(&base64::prelude::BASE64_STANDARD_NO_PAD, value).unwrap();
    assert_eq!(tonic_types::pb::ErrorInfo::decode(bytes.as_slice()).unwrap().reason, "ETAG_MISMATCH");
}

#[test]
fn a_foreign_status_has_its_code_and_words_alone() {
    let failure = Failure::of(&Status::new(Code::Unavailable, "nobody is at home"));
    assert_eq!((failure.http, failure.retry_after), (503, None));
    assert_eq!(failure.body, serde_json::json!({"code": "unavailable", "message": "nobody is at home"}));
}

#[test]
fn every_code_has_a_word_of_its_own_and_an_error_of_http() {
    let mut words: Vec<&str> = (1..17).map(|code| code_word(Code::from(code))).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), 16);
    assert!((0..17).all(|code| (400..600).contains(&http_status(Code::from(code)))));
}

/// What we publish for clients in other languages: single calls are tried again, streams have no deadline.
#[test]
fn the_published_service_config_covers_every_call() {
    let text = include_str!("../../../config/clients/service_config.json");
    let config: serde_json::Value = serde_json::from_str(text).unwrap();
    for call in METHODS {
        let service = call.service();
        let name = call.path.rsplit('/').next().unwrap();
        let find = |wanted: serde_json::Value| {
            let parts = config["methodConfig"].as_array().unwrap();
            parts.iter().find(|part| part["name"].as_array().unwrap().contains(&wanted))
        };
        let own = find(serde_json::json!({"service": service, "method": name}));
        let part = own
            .or_else(|| find(serde_json::json!({"service": service})))
            .unwrap_or_else(|| panic!("{}", call.path));
        let retried = part["retryPolicy"]["retryableStatusCodes"] == serde_json::json!(["UNAVAILABLE"]);
        let stream = call.client_streams || call.server_streams;
        assert_eq!((retried, part["timeout"].is_string()), (!stream, !stream), "{}", call.path);
    }
    assert!(services().count() >= 4 && services().is_sorted());
}
