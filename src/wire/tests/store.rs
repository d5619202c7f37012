//! Log entries and images: what is written reads back, what is damaged is refused, and it stays small.

#[cfg(test)]
mod common;

use std::io;

use common::{
    bytes::{encoded, entry, image},
    story, values,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use quorate_base::time::Timestamp;
use quorate_model::{JobId, JobVersion, NodeId, Revision, Slot, TaskId};
use quorate_state::{Actor, Builder, Command, Envelope, Halt, NewTasks};
use quorate_wire::store::{
    ReadError, RecordReader, decode_batch, decode_record, digest, encode_batch, fingerprint,
};

const AT: Revision = Revision(42);

proptest! {
    #[test]
    fn commands_read_back_as_they_were_written(batch in vec(values::envelope(), 0..4)) {
        prop_assert_eq!(decode_batch(&encode_batch(&batch), AT), Ok(batch));
    }

    #[test]
    fn records_read_back_as_they_were_written(record in values::record()) {
        prop_assert_eq!(decode_record(&encoded(&record)), Ok(record));
    }

    #[test]
    fn equal_commands_have_equal_fingerprints_and_different_ones_differ(
        (a, b) in (values::envelope(), values::envelope())
    ) {
        prop_assert_eq!(fingerprint(&a.command) == fingerprint(&b.command), a.command == b.command);
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_value_but_never_a_panic(
        envelope in values::envelope(), record in values::record(), at in any::<Index>(), flip in 1_u8..
    ) {
        let mut entry = encode_batch(&[envelope]).to_vec();
        let place = at.index(entry.len());
        entry[place] ^= flip;
        let _ = decode_batch(&entry, AT);
        let _ = decode_batch(&entry[..place], AT);
        let mut bytes = encoded(&record);
        let place = at.index(bytes.len());
        bytes[place] ^= flip;
        let _ = decode_record(&bytes);
        let _ = decode_record(&bytes[..place]);
    }

    #[test]
    fn rubbish_is_never_a_panic(bytes in vec(any::<u8>(), 0..512)) {
        let _ = decode_batch(&bytes, AT);
        let _ = decode_record(&bytes);
        let _ = RecordReader::new(bytes.as_slice()).count();
    }
}

#[test]
fn commands_of_two_kinds_with_one_payload_have_two_fingerprints() {
    let (namespace, name) = (common::name("default"), common::name("web"));
    let scale =
        Command::ScaleJob { namespace: namespace.clone(), name: name.clone(), replicas: 1, expect: None };
    let delete = Command::DeleteJob { namespace, name, purge: true, expect: None };
    assert_ne!(fingerprint(&scale), fingerprint(&delete));
}

#[test]
fn a_kind_or_format_of_the_future_asks_for_a_newer_binary() {
    for (fields, kind, format) in [
        (&[0x08, 0x63, 0x10, 0x01][..], 99, 1),
        (&[0x08, 0x01, 0x10, 0x02][..], 1, 2),
        (&[0x08, 0x80, 0x80, 0x04, 0x10, 0x01][..], 65_536, 1),
    ] {
        match decode_batch(&entry(fields), AT) {
            Err(Halt::NeedsVersion { index, kind: k, format: f, .. }) => {
                assert_eq!((index, k, f), (AT, kind, format));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn damage_is_reported_with_its_place() {
    let message = |bytes: &[u8]| decode_batch(bytes, AT).unwrap_err().to_string();
    assert_eq!(message(&entry(&[])), "cannot decode log entry 42: command has no kind or no format");
    assert_eq!(message(&entry(&[0x08, 0x05, 0x10, 0x01])), "cannot decode log entry 42: actor is missing");
    assert!(message(&[0xff]).starts_with("cannot decode log entry 42: "));
    let uneven = [0x08, 17, 0x10, 0x01, 0x2a, 0x03, 0x0a, 0x01, b'a', 0x3a, 0x03, 0x0a, 0x01, 0x02];
    assert_eq!(
        message(&entry(&uneven)),
        "cannot decode log entry 42: AssignTasks: placements name 1 tasks but 0 nodes"
    );
    assert_eq!(
        decode_record(&[]).unwrap_err().to_string(),
        "cannot decode a record of the image: kind is missing"
    );
}

#[test]
fn unknown_fields_are_skipped() {
    let envelope = story::story().remove(0);
    let bytes = encode_batch(std::slice::from_ref(&envelope));
    let newer = [&bytes[..], &[0xf8, 0x7f, 0x01]].concat();
    assert_eq!(decode_batch(&newer, AT), Ok(vec![envelope]));
}

#[test]
fn a_state_restored_from_its_image_has_the_same_digest() {
    let state = story::ending();
    let bytes = image(&state);
    let mut builder = Builder::default();
    for record in RecordReader::new(bytes.as_slice()) {
        builder.push(record.unwrap()).unwrap();
    }
    let restored = builder.finish().unwrap();
    assert_eq!(digest(&restored), digest(&state));
    assert!(restored.records().eq(state.records()));

    let mut changed = state.clone();
    changed.advance(quorate_state::Position { index: Revision(99), ..state.applied() });
    assert_ne!(digest(&changed), digest(&state));
}

#[test]
fn an_image_cut_anywhere_ends_with_whole_records_or_an_error() {
    let state = story::ending();
    let bytes = image(&state);
    let total = state.records().count();
    let mut whole = 0;
    for cut in 0..bytes.len() {
        let read: Vec<_> = RecordReader::new(&bytes[..cut]).collect();
        let good = read.iter().take_while(|r| r.is_ok()).count();
        assert!(good < total, "cut at {cut}");
        if good == read.len() {
            whole += 1;
        } else {
            assert_eq!(read.len(), good + 1, "nothing follows an error");
        }
    }
    assert_eq!(whole, total, "one clean end before each record");
}

#[test]
fn an_absurd_length_is_refused_before_anything_is_read() {
    let mut reader = RecordReader::new([0xff, 0xff, 0xff, 0xff, 0x01].as_slice());
    let error = reader.next().unwrap().unwrap_err();
    assert!(matches!(&error, ReadError::Halt(Halt::Undecodable { why, .. }) if why.contains("any record")));
    assert!(reader.next().is_none());
    let endless = RecordReader::new(io::repeat(0xff)).next().unwrap().unwrap_err();
    assert!(endless.to_string().contains("a length does not end"), "{endless}");
}

#[test]
fn a_thousand_new_tasks_on_a_hundred_nodes_are_a_few_kilobytes() {
    let by = |command| Envelope {
        proposed_at: story::START,
        fence: Some(quorate_model::Term(7)),
        actor: Actor::Manager(common::name("m1")),
        request: None,
        trace: None,
        command,
    };
    let run = NewTasks { first: Slot(0), count: 1000, attempt: 0, not_before: Timestamp::EPOCH };
    let create = by(Command::CreateTasks { job: JobId(7), version: JobVersion(3), groups: vec![run] });
    let placements = (0..1000).map(|i| (TaskId(5_000_000 + i), NodeId((i * 37 % 100) as u32))).collect();
    let assign = by(Command::AssignTasks { placements });
    let (create, assign) = (encode_batch(&[create]).len(), encode_batch(&[assign]).len());
    assert!(create < 64, "{create} bytes for a thousand new tasks");
    assert!(create + assign < 4 << 10, "{create} + {assign} bytes");
}
