use bytes::Bytes;
use quorate_storage::{Bounds, LogOptions, StorageError};

use crate::place::{Place, ack, append, entries, entry};

/// Keeps next to nothing in memory, so that reads have to come from the store.
fn tiny() -> LogOptions {
    LogOptions { cache_bytes: 100, ..LogOptions::default() }
}

#[tokio::test]
async fn entries_are_read_back_after_a_reopen() {
    for place in Place::both() {
        let opened = place.open(tiny());
        append(&opened.storage.log, 0, entries(0..700, 1)).await;
        append(&opened.storage.log, 700, entries(700..1000, 1)).await;
        opened.storage.log.save_vote(Bytes::from_static(b"vote")).await.unwrap();
        opened.storage.close().await;

        let opened = place.open(tiny());
        assert_eq!((opened.recovered.start, opened.recovered.end), (0, 1000));
        assert_eq!(opened.recovered.vote.as_deref(), Some(&b"vote"[..]));
        assert_eq!(opened.recovered.torn, None);
        let log = &opened.storage.log;
        assert_eq!(log.vote().as_deref(), Some(&b"vote"[..]));
        assert_eq!(log.read(0..1000, usize::MAX).await.unwrap(), (0, entries(0..1000, 1)));
        assert_eq!(log.read(333..335, usize::MAX).await.unwrap(), (333, entries(333..335, 1)));
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn an_entry_can_be_read_before_it_is_durable() {
    let disk = quorate_storage::MemoryDisk::new();
    let place = Place::Memory(disk.clone());
    let log = place.open(tiny()).storage.log;
    disk.hold_flushes();
    let (done, mut acked) = ack();
    log.append(0, entries(0..50, 1), done).await.unwrap();
    disk.wait_unflushed(1);
    assert_eq!(log.read(0..50, usize::MAX).await.unwrap(), (0, entries(0..50, 1)));
    assert!(acked.try_recv().is_err(), "acknowledged before the flush ended");
    disk.release_flushes();
    acked.await.unwrap().unwrap();
}

#[tokio::test]
async fn truncation_cuts_inside_a_record_and_new_entries_follow() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let log = &opened.storage.log;
        append(log, 0, entries(0..100, 1)).await;
        log.truncate(37).await.unwrap();
        assert_eq!(log.bounds(), Bounds { start: 0, end: 37 });
        append(log, 37, entries(37..60, 2)).await;
        let expected = [entries(0..37, 1), entries(37..60, 2)].concat();
        assert_eq!(log.read(0..60, usize::MAX).await.unwrap(), (0, expected.clone()));
        opened.storage.close().await;

        let opened = place.open(tiny());
        assert_eq!(opened.storage.log.read(0..99, usize::MAX).await.unwrap(), (0, expected));
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn entries_of_any_size_survive() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let sizes = [10, 30_000, 5, 24 << 10, 1 << 20, 0, 3 << 20];
        let all: Vec<_> = sizes.iter().zip(0..).map(|(len, i)| entry(i, 1, *len)).collect();
        append(&opened.storage.log, 0, all.clone()).await;
        let (done, _acked) = ack();
        let huge = Bytes::from(vec![0; quorate_storage::MAX_ENTRY_BYTES + 1]);
        let refused = opened.storage.log.append(7, vec![huge], done).await.unwrap_err();
        assert!(matches!(refused, StorageError::TooLarge { index: 7, .. }), "{refused}");
        opened.storage.log.truncate(6).await.unwrap();
        opened.storage.close().await;

        let opened = place.open(tiny());
        assert_eq!(opened.storage.log.read(0..9, usize::MAX).await.unwrap(), (0, all[..6].to_vec()));
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn purged_entries_are_gone_for_good_and_the_marker_stays() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let log = &opened.storage.log;
        let id = quorate_storage::ImageId { index: 2000, term: 1 };
        opened.storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap();
        for batch in 0..20 {
            append(log, batch * 100, entries(batch * 100..(batch + 1) * 100, 1)).await;
        }
        log.purge(1234, Bytes::from_static(b"marker")).await.unwrap();
        log.purge(1000, Bytes::from_static(b"older")).await.unwrap();
        assert_eq!(log.bounds(), Bounds { start: 1234, end: 2000 });
        assert_eq!(log.read(1000..1300, usize::MAX).await.unwrap(), (1234, entries(1234..1300, 1)));
        opened.storage.close().await;

        let opened = place.open(tiny());
        assert_eq!((opened.recovered.start, opened.recovered.end), (1234, 2000));
        let log = &opened.storage.log;
        assert_eq!(log.read(0..1300, usize::MAX).await.unwrap(), (1234, entries(1234..1300, 1)));
        // Past the end, as after an installed image.
        log.purge(2001, Bytes::from_static(b"past")).await.unwrap();
        append(log, 2001, entries(2001..2010, 3)).await;
        opened.storage.close().await;

        let opened = place.open(tiny());
        assert_eq!(opened.recovered.purged.as_deref(), Some(&b"past"[..]));
        assert_eq!(
            opened.storage.log.read(0..9999, usize::MAX).await.unwrap(),
            (2001, entries(2001..2010, 3))
        );
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn an_older_purge_does_not_replace_the_marker() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let id = quorate_storage::ImageId { index: 9, term: 1 };
        opened.storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap();
        append(&opened.storage.log, 0, entries(0..10, 1)).await;
        opened.storage.log.purge(8, Bytes::from_static(b"new")).await.unwrap();
        opened.storage.log.purge(3, Bytes::from_static(b"old")).await.unwrap();
        opened.storage.close().await;
        let opened = place.open(tiny());
        assert_eq!(opened.recovered.purged.as_deref(), Some(&b"new"[..]));
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn reads_are_limited_by_bytes_wherever_they_come_from() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let log = &opened.storage.log;
        append(log, 0, entries(0..500, 1)).await;
        let (first, some) = log.read(0..500, 400).await.unwrap();
        assert_eq!((first, some.len()), (0, 10));
        assert_eq!(log.read(7..500, 1).await.unwrap(), (7, entries(7..8, 1)));
        assert_eq!(log.read(499..500, 1).await.unwrap(), (499, entries(499..500, 1)));
        assert_eq!(log.read(500..600, 1).await.unwrap(), (500, vec![]));
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn changes_out_of_order_are_refused() {
    let place = Place::Memory(quorate_storage::MemoryDisk::new());
    let log = place.open(tiny()).storage.log;
    append(&log, 0, entries(0..5, 1)).await;
    let (done, _acked) = ack();
    let gap = log.append(6, entries(6..7, 1), done).await.unwrap_err();
    assert_eq!(gap.to_string(), "log index 6 is out of order: the log holds 0..5");
    assert!(log.truncate(6).await.is_err());
    append(&log, 5, entries(5..6, 1)).await;
}

#[tokio::test]
async fn a_closed_log_says_so() {
    for place in Place::both() {
        let opened = place.open(tiny());
        let log = opened.storage.log.clone();
        opened.storage.close().await;
        assert!(matches!(log.save_vote(Bytes::new()).await.unwrap_err(), StorageError::Closed));
    }
}

#[tokio::test]
async fn the_commit_note_is_kept_when_it_is_a_second_old() {
    // The note rides along with a later group, so it may be missing, never wrong.
    for place in Place::both() {
        let opened = place.open(tiny());
        opened.storage.log.note_committed(Bytes::from_static(b"7")).await.unwrap();
        append(&opened.storage.log, 0, entries(0..1, 1)).await;
        opened.storage.close().await;
        let opened = place.open(tiny());
        assert!(opened.recovered.committed.is_none_or(|c| c == "7"));
        opened.storage.close().await;
    }
}
