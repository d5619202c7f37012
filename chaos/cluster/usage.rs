//! What a process uses, by the word of the kernel.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Clock ticks per second in what the kernel tells of processes: the same on every Linux.
const TICKS: u64 = 100;

/// What a process has used so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a processor, in the program and in the kernel for it.
    pub cpu: Duration,
    /// Memory that it holds, in bytes.
    pub memory: u64,
    /// Bytes that it had written to files.
    pub written: u64,
}

impl Usage {
    /// That of a process now.
    ///
    /// # Errors
    /// When it does not run or belongs to somebody else.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/{file}"))
                .with_context(|| format!("cannot read what process {pid} uses ({file})"))
        };
        let ticks = ticks(&read("stat")?).context("/proc/…/stat is not understood")?;
        let memory = field(&read("status")?, "VmRSS:").context("/proc/…/status is not understood")?;
        let written = field(&read("io")?, "write_bytes:").context("/proc/…/io is not understood")?;
        let cpu = Duration::from_millis(ticks * 1_000 / TICKS);
        Ok(Self { cpu, memory: memory << 10, written })
    }

    /// Share of one core since `before`, in percent.
    #[must_use]
    pub fn percent_since(&self, before: &Self, span: Duration) -> f64 {
        100.0 * self.cpu.saturating_sub(before.cpu).as_secs_f64() / span.as_secs_f64()
    }
}

/// The 14th and 15th field; the second one, in brackets, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_kernel_are_found() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 5 6 7";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(field("Name:\tx\nVmRSS:\t  1234 kB\n", "VmRSS:"), Some(1_234));
        assert_eq!(field("Name:\tx\n", "VmRSS:"), None);
    }

    #[test]
    fn the_share_of_a_core_is_told_in_percent() {
        let before = Usage { cpu: Duration::from_secs(1), ..Usage::default() };
        let after = Usage { cpu: Duration::from_millis(1_250), ..Usage::default() };
        assert!((after.percent_since(&before, Duration::from_secs(5)) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Usage::of(std::process::id()).unwrap().memory > 0);
    }
}
