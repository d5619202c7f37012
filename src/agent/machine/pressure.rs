//! Whether a machine is short of disk or memory: pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quorate_model::{NodeCondition, quantity};

use super::proc::{Memory, Space};
use crate::config::Pressure;

/// Percent by which a figure must be better than its limit before the trouble is over.
const EASE: u64 = 3;

/// A file system that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    pub(super) space: Space,
}

/// A look at the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sample {
    pub(super) disks: Vec<Disk>,
    pub(super) memory: Option<Memory>,
}

/// The troubles now. One that lasts keeps its words: figures that change all the time are no news to the managers.
pub(super) fn judge(
    known: &BTreeMap<NodeCondition, String>,
    sample: &Sample,
    limits: &Pressure,
) -> BTreeMap<NodeCondition, String> {
    let found = [
        (NodeCondition::DiskPressure, disk(sample, limits, known.contains_key(&NodeCondition::DiskPressure))),
        (
            NodeCondition::MemoryPressure,
            memory(sample, limits, known.contains_key(&NodeCondition::MemoryPressure)),
        ),
    ];
    let short = found.into_iter().filter_map(|(condition, text)| Some((condition, text?)));
    short.map(|(condition, text)| (condition, known.get(&condition).cloned().unwrap_or(text))).collect()
}

fn disk(sample: &Sample, limits: &Pressure, lasts: bool) -> Option<String> {
    let ease = if lasts { EASE } else { 0 };
    let most_used = u64::from(limits.disk_used_percent).saturating_sub(ease);
    let least_free =
        limits.disk_free_bytes.saturating_add(if lasts { limits.disk_free_bytes / 4 } else { 0 });
    let short = |disk: &&Disk| {
        let Space { used, available, .. } = disk.space;
        percent(used, used.saturating_add(available)) >= most_used || available < least_free
    };
    let Disk { path, space } = sample.disks.iter().find(short)?;
    Some(format!(
        "{} % of the disk of {} is used and {} is free (short from {} % or below {})",
        percent(space.used, space.used.saturating_add(space.available)),
        path.display(),
        quantity::memory(space.available),
        limits.disk_used_percent,
        quantity::memory(limits.disk_free_bytes)
    ))
}

fn memory(sample: &Sample, limits: &Pressure, lasts: bool) -> Option<String> {
    let Memory { total, available } = sample.memory?;
    let least = u64::from(limits.memory_available_percent) + if lasts { EASE } else { 0 };
    let left = percent(available, total);
    (left < least).then(|| {
        format!(
            "{left} % of the memory ({}) is available (short below {} %)",
            quantity::memory(available),
            limits.memory_available_percent
        )
    })
}

/// Of nothing everything is used.
fn percent(part: u64, whole: u64) -> u64 {
    let share = u128::from(part).saturating_mul(100).checked_div(u128::from(whole)).unwrap_or(100);
    u64::try_from(share).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn sample(used: u64, available: u64, memory: u64) -> Sample {
        let space =
            Space { used: used * GIB, available: available * GIB, capacity: (used + available) * GIB };
        Sample {
            disks: vec![Disk { path: "/data".into(), space }],
            memory: Some(Memory { total: 100 * GIB, available: memory * GIB }),
        }
    }

    fn words(conditions: &BTreeMap<NodeCondition, String>) -> Vec<&'static str> {
        conditions.keys().map(|condition| condition.as_str()).collect()
    }

    #[test]
    fn troubles_begin_at_the_limit_and_end_well_below_it() {
        let limits = Pressure::default();
        let mut known = BTreeMap::new();
        let table = [
            (sample(89, 11, 50), vec![]),
            (sample(90, 10, 50), vec!["disk-pressure"]),
            (sample(88, 12, 50), vec!["disk-pressure"]),
            (sample(86, 14, 50), vec![]),
            (sample(1, 1, 50), vec!["disk-pressure"]),
            (sample(2, 2, 50), vec!["disk-pressure"]),
            (sample(3, 3, 4), vec!["memory-pressure"]),
            (sample(3, 3, 7), vec!["memory-pressure"]),
            (sample(3, 3, 8), vec![]),
            (Sample::default(), vec![]),
        ];
        for (sample, expected) in table {
            known = judge(&known, &sample, &limits);
            assert_eq!(words(&known), expected, "{sample:?}");
        }
    }

    #[test]
    fn the_words_have_figures_and_stay_while_the_trouble_lasts() {
        let limits = Pressure::default();
        let first = judge(&BTreeMap::new(), &sample(95, 5, 50), &limits);
        let text = &first[&NodeCondition::DiskPressure];
        assert_eq!(
            text, "95 % of the disk of /data is used and 5GiB is free (short from 90 % or below 2GiB)",
            "figures and limits"
        );
        assert_eq!(judge(&first, &sample(97, 3, 50), &limits), first);
    }
}
