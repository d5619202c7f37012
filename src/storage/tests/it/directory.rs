use std::fs;
use std::path::Path;

use bytes::Bytes;
use quorate_base::{ClusterId, Rng};
use quorate_storage::{LogOptions, OpenError, Opened, Storage};

use crate::place::{append, entries};

fn open(dir: &Path, node: &str) -> Result<Opened, OpenError> {
    Storage::open(dir, node, LogOptions::default(), &mut Rng::from_entropy())
}

/// A directory with 1,000 acknowledged entries, closed; its Raft id.
async fn filled(dir: &Path) -> u64 {
    let storage = open(dir, "m1").unwrap().storage;
    for batch in 0..10 {
        append(&storage.log, batch * 100, entries(batch * 100..(batch + 1) * 100, 1)).await;
    }
    storage.header.join_cluster(ClusterId::from_u128(5), 2).unwrap();
    let id = storage.header.get().raft_id;
    storage.close().await;
    id
}

#[tokio::test]
async fn a_second_owner_is_refused_and_told_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), "m1").unwrap();
    let text = open(dir.path(), "m1").unwrap_err().to_string();
    assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
    first.storage.close().await;
    open(dir.path(), "m1").unwrap();
}

#[tokio::test]
async fn the_directory_of_another_manager_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let text = open(dir.path(), "m2").unwrap_err().to_string();
    assert!(text.contains("belongs to manager \"m1\", this is \"m2\""), "{text}");
}

#[tokio::test]
async fn the_identity_stays_and_the_cluster_cannot_change() {
    let dir = tempfile::tempdir().unwrap();
    let id = filled(dir.path()).await;
    let storage = open(dir.path(), "m1").unwrap().storage;
    let header = storage.header.get();
    assert_eq!((header.raft_id, header.epoch), (id, 2));
    let refused = storage.header.join_cluster(ClusterId::from_u128(6), 2).unwrap_err();
    assert!(refused.to_string().contains("it belongs to cluster"), "{refused}");
}

#[test]
fn a_folder_with_other_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("holiday.jpg"), b"x").unwrap();
    assert!(matches!(open(dir.path(), "m1").unwrap_err(), OpenError::NotOurs { .. }));
}

#[tokio::test]
async fn a_damaged_or_foreign_header_is_named() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let header = dir.path().join("header");
    let text = fs::read_to_string(&header).unwrap();
    fs::write(&header, text.replace("epoch 2", "epoch 3")).unwrap();
    assert!(matches!(open(dir.path(), "m1").unwrap_err(), OpenError::DamagedHeader { .. }));

    let body = text.rsplit_once("crc32").unwrap().0.replace("quorate-data 1", "quorate-data 9");
    fs::write(&header, format!("{body}crc32 {:08x}\n", crc32fast::hash(body.as_bytes()))).unwrap();
    assert!(matches!(open(dir.path(), "m1").unwrap_err(), OpenError::OtherVersion { found: 9, .. }));
}

#[test]
fn an_interrupted_first_start_starts_over_under_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let id = open(dir.path(), "m1").unwrap().storage.header.get().raft_id;
    let header = dir.path().join("header");
    let text = fs::read_to_string(&header).unwrap().replace("store ready", "store new");
    let body = text.rsplit_once("crc32").unwrap().0;
    fs::write(&header, format!("{body}crc32 {:08x}\n", crc32fast::hash(body.as_bytes()))).unwrap();
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    fs::write(dir.path().join("log/db"), b"half").unwrap();
    let opened = open(dir.path(), "m1").unwrap();
    assert!(opened.quarantined.is_none());
    assert_eq!(opened.storage.header.get().raft_id, id);
}

async fn quarantined(damage: impl FnOnce(&Path)) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let old = filled(dir.path()).await;
    damage(dir.path());
    let opened = open(dir.path(), "m1").unwrap();
    let report = opened.quarantined.clone().unwrap_or_else(|| panic!("not noticed: {:?}", opened.recovered));
    assert_eq!(report.raft_id, old);
    assert!(report.path.starts_with(dir.path().join("quarantine")));
    let header = opened.storage.header.get();
    assert_ne!(header.raft_id, old, "an emptied store must not vote under its old id");
    assert_eq!(header.cluster, Some(ClusterId::from_u128(5)), "it rejoins its cluster");
    assert_eq!((opened.recovered.start, opened.recovered.end), (0, 0));
    append(&opened.storage.log, 0, entries(0..3, 9)).await;
    opened
}

#[tokio::test]
async fn a_store_cut_short_is_quarantined() {
    let opened = quarantined(|dir| {
        let db = fs::OpenOptions::new().write(true).open(dir.join("log/db")).unwrap();
        db.set_len(db.metadata().unwrap().len() / 50).unwrap();
        // sled would take its data from its snapshot's idea of the file.
    })
    .await;
    opened.storage.close().await;
}

#[tokio::test]
async fn a_store_that_is_gone_is_quarantined() {
    let opened = quarantined(|dir| fs::remove_dir_all(dir.join("log")).unwrap()).await;
    assert!(opened.quarantined.unwrap().reason.ends_with("it is missing"));
}

#[tokio::test]
async fn a_store_of_garbage_is_quarantined() {
    quarantined(|dir| {
        let db = dir.join("log/db");
        let mut bytes = fs::read(&db).unwrap();
        bytes.iter_mut().skip(100).step_by(7).for_each(|b| *b ^= 0x5a);
        fs::write(&db, bytes).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_log_whose_image_is_gone_is_quarantined() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path(), "m1").unwrap().storage;
    append(&storage.log, 0, entries(0..100, 1)).await;
    let id = quorate_storage::ImageId { index: 60, term: 1 };
    storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap();
    storage.log.purge(50, Bytes::new()).await.unwrap();
    storage.close().await;
    open(dir.path(), "m1").unwrap().storage.close().await;
    for image in fs::read_dir(dir.path().join("images")).unwrap() {
        fs::write(image.unwrap().path(), b"no image").unwrap();
    }
    let opened = open(dir.path(), "m1").unwrap();
    let reason = opened.quarantined.unwrap().reason;
    assert!(reason.contains("the log begins at index 50 but the newest valid image ends at 0"), "{reason}");
}

#[tokio::test]
async fn a_leftover_of_an_interrupted_opening_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    fs::write(dir.path().join("log/snap.0000000000001234.generating"), b"junk").unwrap();
    let opened = open(dir.path(), "m1").unwrap();
    assert!(opened.quarantined.is_none());
    assert_eq!(opened.recovered.end, 1000);
}

#[test]
fn a_path_that_is_a_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    let text = open(&file, "m1").unwrap_err().to_string();
    assert!(text.starts_with("creating the data directory failed at"), "{text}");
}
