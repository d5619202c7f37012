//! A process that is killed with SIGKILL loses nothing that it acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use bytes::Bytes;
use quorate_base::Rng;
use quorate_storage::{LogOptions, Storage};

use crate::place::{append, entries};

const DIR: &str = "QUORATE_TEST_KILL_DIR";
const ROUNDS: u64 = 12;

/// The child: appends, votes and purges for ever; says after each what is durable.
async fn write_until_killed(dir: &str) {
    let opened = Storage::open(dir.as_ref(), "m1", LogOptions::default(), &mut Rng::from_entropy()).unwrap();
    let (log, mut next, mut rng) = (opened.storage.log, opened.recovered.end, Rng::from_entropy());
    let mut out = std::io::stdout();
    loop {
        let count = rng.between(1, 60);
        append(&log, next, entries(next..next + count, 1)).await;
        next += count;
        writeln!(out, "end {next}").unwrap();
        log.save_vote(Bytes::from(next.to_string())).await.unwrap();
        writeln!(out, "vote {next}").unwrap();
        if rng.chance(0.1) {
            let start = next - count;
            log.purge(start, Bytes::new()).await.unwrap();
            writeln!(out, "start {start}").unwrap();
        }
    }
}

#[tokio::test]
async fn acknowledged_entries_survive_sigkill() {
    if let Ok(dir) = std::env::var(DIR) {
        return write_until_killed(&dir).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let opened = Storage::open(dir.path(), "m1", LogOptions::default(), &mut Rng::seeded(1)).unwrap();
    let id = quorate_storage::ImageId { index: 1 << 40, term: 1 };
    opened.storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap();
    opened.storage.close().await;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::acknowledged_entries_survive_sigkill", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut end, mut vote, mut start, mut seen) = (0, 0, 0, 0);
        for line in lines {
            let line = line.unwrap();
            let Some((what, number)) = line.rsplit_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what.rsplit_once(' ').map_or(what, |(_, w)| w) {
                "end" => end = number,
                "vote" => vote = number,
                "start" => start = number,
                _ => continue,
            }
            seen += 1;
            if seen == 20 + round * 13 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= 20, "round {round}: the child ended by itself after {seen} lines");
        let opened = Storage::open(dir.path(), "m1", LogOptions::default(), &mut Rng::seeded(1)).unwrap();
        assert!(opened.quarantined.is_none(), "{:?}", opened.quarantined);
        let found = &opened.recovered;
        assert!(found.end >= end && found.start >= start, "round {round}: {found:?}, acknowledged {end}");
        let stored_vote: u64 = std::str::from_utf8(found.vote.as_ref().unwrap()).unwrap().parse().unwrap();
        assert!(stored_vote >= vote, "round {round}: vote {stored_vote}, acknowledged {vote}");
        let (first, all) = opened.storage.log.read(0..u64::MAX, usize::MAX).await.unwrap();
        assert_eq!((first, all), (found.start, entries(found.start..found.end, 1)));
        opened.storage.close().await;
    }
}
