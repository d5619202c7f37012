//! Golden bytes: what a released version wrote must read back for ever, and must still be written so.
//!
//! The files hold hexadecimal digits; lines that begin with `#` are for people. `QUORATE_GOLDEN=write` writes them
//! anew, which is right only for a format that no release has written yet.

#[cfg(test)]
mod common;

use std::collections::BTreeSet;

use common::{
    bytes::{encoded, golden},
    story::{ending, story},
};
use quorate_model::Revision;
use quorate_state::{CommandKind, Record};
use quorate_wire::store::{decode_batch, decode_record, digest, encode_batch};

#[test]
fn every_kind_of_command_keeps_its_bytes() {
    let mut seen = BTreeSet::new();
    for envelope in story() {
        let kind = envelope.command.kind();
        if !seen.insert(kind) {
            continue;
        }
        let batch = [envelope];
        let bytes = encode_batch(&batch);
        let name = format!("command-{:02}-{kind:?}", kind.number());
        let stored = golden(&name, &format!("a log entry with one {kind:?}, format 1"), &bytes);
        assert_eq!(decode_batch(&stored, Revision(1)).unwrap(), batch, "{name}: reads as something else");
        assert_eq!(stored, bytes, "{name}: is written otherwise");
    }
    assert_eq!(seen, CommandKind::ALL.into_iter().collect());
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Meta(_) => "meta",
        Record::Manager(_) => "manager",
        Record::Node(_) => "node",
        Record::Job(_) => "job",
        Record::Task(_) => "task",
        Record::Request(_) => "request",
    }
}

#[test]
fn every_kind_of_record_keeps_its_bytes_and_the_state_its_digest() {
    let state = ending();
    let mut seen = BTreeSet::new();
    for record in state.records() {
        let kind = kind(&record);
        if !seen.insert(kind) {
            continue;
        }
        let bytes = encoded(&record);
        let stored = golden(&format!("record-{kind}"), &format!("an image's record of a {kind}"), &bytes);
        assert_eq!(decode_record(&stored).unwrap(), record, "{kind}: reads as something else");
        assert_eq!(stored, bytes, "{kind}: is written otherwise");
    }
    assert_eq!(seen.len(), 6, "the story leaves a record of every kind: {seen:?}");
    let now = digest(&state).to_be_bytes();
    assert_eq!(golden("digest", "the digest of the state after the story", &now), now);
}
