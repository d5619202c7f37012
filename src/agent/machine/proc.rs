//! The kernel's figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::statvfs::statvfs;

use crate::runtime::Counters;

/// One tick of the kernel's processor times: the same on all Linux machines.
const TICK: Duration = Duration::from_millis(10);

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

/// A file system, in bytes. What is kept back for root is neither used nor available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) used: u64,
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

/// Time that all processors together were busy since the boot.
pub(crate) fn busy() -> Option<Duration> {
    parse_busy(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_busy(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = *ticks.first_chunk()?;
    Some(ticks_of(user + nice + system + irq + softirq + steal))
}

fn ticks_of(ticks: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// The machine's memory.
pub(crate) fn memory() -> Option<Memory> {
    parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_memory(info: &str) -> Option<Memory> {
    Some(Memory { total: kibibytes(info, "MemTotal:")?, available: kibibytes(info, "MemAvailable:")? })
}

/// A line such as `VmRSS:  1234 kB`, in bytes.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// The file system that holds `path`.
pub(crate) fn disk(path: &Path) -> Option<Space> {
    let found = statvfs(path).ok()?;
    let (block, blocks) = (found.fragment_size(), found.blocks());
    let bytes = |count: u64| count.saturating_mul(block);
    Some(Space {
        used: bytes(blocks.saturating_sub(found.blocks_free())),
        available: bytes(found.blocks_available()),
        capacity: bytes(blocks),
    })
}

/// What the processes of each process group use together; a group without any is left out.
pub(crate) fn groups(wanted: &BTreeSet<i32>) -> BTreeMap<i32, Counters> {
    let mut all: BTreeMap<i32, Counters> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(process.path().join(file)).ok();
        let Some((group, cpu)) = read("stat").as_deref().and_then(parse_process) else { continue };
        if !wanted.contains(&group) {
            continue;
        }
        let status = read("status").unwrap_or_default();
        let counters = all.entry(group).or_default();
        counters.cpu = counters.cpu.saturating_add(cpu);
        counters.memory_bytes += kibibytes(&status, "VmRSS:").unwrap_or(0);
        counters.pids += 1;
    }
    all
}

/// Process group and processor time of a `/proc/<pid>/stat`.
fn parse_process(stat: &str) -> Option<(i32, Duration)> {
    // The name before it may hold anything, parentheses included.
    let (_, rest) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    // From the state, the third field, on: ppid, pgrp, …, utime (14th), stime, and those of reaped children.
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some((words.get(2)?.parse().ok()?, ticks_of(ticks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "cpu  10 20 30 1000 500 1 2 3 7 7\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_busy(stat), Some(Duration::from_millis(660)));
        assert_eq!(parse_busy("nothing"), None);
        let info = "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:    512 kB\n";
        assert_eq!(parse_memory(info), Some(Memory { total: 2_048 << 10, available: 512 << 10 }));
        assert_eq!(parse_memory("MemTotal: 1 kB"), None);
        let stat = "77 (a) b) S 1 70 70 0 -1 4194304 1 0 0 0 100 50 3 2 20 0 1 0 99 1 1";
        assert_eq!(parse_process(stat), Some((70, Duration::from_millis(1_550))));
        assert_eq!(parse_process("77"), None);
    }

    #[test]
    fn this_machine_is_measured() {
        let (memory, space) = (memory().unwrap(), disk(Path::new("/")).unwrap());
        assert!(memory.available > 0 && memory.available < memory.total);
        assert!(space.capacity >= space.used && space.capacity > 0);
        assert!(busy().unwrap() > Duration::ZERO);
        let own = nix::unistd::getpgrp().as_raw();
        let mine = groups(&BTreeSet::from([own]))[&own];
        assert!(mine.pids >= 1 && mine.memory_bytes > 1 << 20, "{mine:?}");
    }
}
