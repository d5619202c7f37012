use std::io::Write;

use bytes::Bytes;
use quorate_base::Rng;
use quorate_storage::{ImageId, ImageStore, LogOptions, MemoryDisk, Storage, StorageError};

use crate::place::Place;

fn id(index: u64) -> ImageId {
    ImageId { index, term: 3 }
}

fn body(index: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut rng = Rng::seeded(index);
    bytes.chunks_mut(8).for_each(|c| c.copy_from_slice(&rng.next_u64().to_le_bytes()[..c.len()]));
    bytes
}

async fn write(images: &ImageStore, index: u64, len: usize) {
    let meta = Bytes::from(format!("meta {index}"));
    images.write(id(index), meta, move |w| w.write_all(&body(index, len))).await.unwrap();
}

fn content(images: &ImageStore) -> (ImageId, Bytes, Vec<u8>) {
    let image = images.newest().unwrap();
    let read = image.read(|r| {
        let mut out = Vec::new();
        r.read_to_end(&mut out).map(|_| out)
    });
    (image.id(), image.meta().clone(), read.unwrap())
}

#[tokio::test]
async fn the_newest_image_is_read_back_and_two_are_kept() {
    for place in Place::both() {
        let opened = place.open(LogOptions::default());
        assert!(opened.storage.images.newest().is_none());
        for index in 1..=4 {
            write(&opened.storage.images, index, 700_000).await;
        }
        opened.storage.close().await;

        let opened = place.open(LogOptions::default());
        let expected = (id(4), Bytes::from_static(b"meta 4"), body(4, 700_000));
        assert_eq!(content(&opened.storage.images), expected);
        let names = match &place {
            Place::Sled(dir) => {
                let dir = std::fs::read_dir(dir.path().join("images")).unwrap();
                dir.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
            }
            Place::Memory(disk) => disk.file_names(),
        };
        assert_eq!(names.iter().filter(|n| n.contains("image-")).count(), 2, "{names:?}");
        opened.storage.close().await;
    }
}

#[tokio::test]
async fn a_damaged_image_is_skipped_with_a_warning() {
    let disk = MemoryDisk::new();
    let place = Place::Memory(disk.clone());
    let opened = place.open(LogOptions::default());
    write(&opened.storage.images, 1, 5000).await;
    write(&opened.storage.images, 2, 5000).await;
    opened.storage.close().await;
    let newest = disk.file_names().into_iter().filter(|n| n.contains("image-")).max().unwrap();
    assert!(disk.damage_file(&newest));

    let opened = place.open(LogOptions::default());
    assert_eq!(content(&opened.storage.images).2, body(1, 5000));
    assert_eq!(opened.damaged_images.len(), 1);
    assert!(opened.damaged_images[0].reason.ends_with("the checksum of its body does not fit"));
}

#[tokio::test]
async fn an_image_travels_in_chunks() {
    for place in Place::both() {
        let (from, to) = (place.open(LogOptions::default()), MemoryDisk::new());
        let to = Place::Memory(to).open(LogOptions::default());
        write(&from.storage.images, 9, 3_000_000).await;
        let image = from.storage.images.newest().unwrap();
        // A newer one replaces it meanwhile, twice: the open file stays readable.
        write(&from.storage.images, 10, 10).await;
        write(&from.storage.images, 11, 10).await;
        let mut receiver = to.storage.images.receive().unwrap();
        while receiver.received() < image.file_len() {
            let chunk = from.storage.images.chunk(image.clone(), receiver.received(), 1 << 20).await.unwrap();
            receiver.write(&chunk).unwrap();
        }
        assert_eq!(receiver.finish().unwrap().id(), id(9));
        assert_eq!(content(&to.storage.images).2, body(9, 3_000_000));
        from.storage.close().await;
    }
}

#[tokio::test]
async fn a_transfer_that_is_incomplete_or_damaged_installs_nothing() {
    let disk = MemoryDisk::new();
    let storage = Place::Memory(disk.clone()).open(LogOptions::default()).storage;
    write(&storage.images, 9, 100_000).await;
    let image = storage.images.newest().unwrap();
    let whole = image.chunk(0, usize::MAX).unwrap();
    let mut flipped = whole.to_vec();
    flipped[50_000] ^= 1;
    for bad in [&whole[..whole.len() - 1], &whole[..10], &flipped[..], b"", &[0; 100]] {
        let mut receiver = storage.images.receive().unwrap();
        receiver.write(bad).unwrap();
        assert!(receiver.finish().unwrap_err().is_damage());
    }
    let mut abandoned = storage.images.receive().unwrap();
    abandoned.write(&whole[..5]).unwrap();
    drop(abandoned);
    assert_eq!(disk.file_names().len(), 2, "{:?}", disk.file_names());
    assert_eq!(content(&storage.images).0, id(9));
}

#[tokio::test]
async fn a_failing_producer_leaves_the_old_image() {
    let storage = Place::Memory(MemoryDisk::new()).open(LogOptions::default()).storage;
    write(&storage.images, 1, 100).await;
    let failing = |w: &mut dyn Write| w.write_all(b"half").and_then(|()| Err(std::io::Error::other("stop")));
    let e = storage.images.write(id(2), Bytes::new(), failing).await.unwrap_err();
    assert!(matches!(e, StorageError::Io { .. }), "{e}");
    assert_eq!(content(&storage.images).0, id(1));
}

#[tokio::test]
async fn a_finished_image_survives_power_cuts_and_an_unfinished_one_leaves_no_trace() {
    for seed in 0..100 {
        let disk = MemoryDisk::new();
        let mut rng = Rng::seeded(seed);
        let opened = Storage::open_memory(&disk, "m1", LogOptions::default(), &mut rng).unwrap();
        write(&opened.storage.images, 1, 4000).await;
        let mut receiver = opened.storage.images.receive().unwrap();
        let whole = opened.storage.images.newest().unwrap().chunk(0, usize::MAX).unwrap();
        receiver.write(&whole[..rng.below(whole.len() as u64) as usize]).unwrap();
        if rng.chance(0.5) {
            write(&opened.storage.images, 2, 4000).await;
        }
        let newest = content(&opened.storage.images);
        disk.power_cut(rng.next_u64());
        let opened = Storage::open_memory(&disk, "m1", LogOptions::default(), &mut rng).unwrap();
        assert_eq!(content(&opened.storage.images), newest, "seed {seed}");
        assert!(opened.damaged_images.is_empty());
        assert!(
            !disk.file_names().iter().any(|n| n.ends_with(".tmp")),
            "seed {seed}: {:?}",
            disk.file_names()
        );
    }
}
