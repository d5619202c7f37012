//! Amounts of processor and memory, and how users write them.

use std::fmt;

use crate::{Invalid, InvalidList};

/// What a container reserves: the scheduler subtracts it from a node's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Thousandths of a processor core.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl Resources {
    /// Sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// Difference, never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }

    /// Whether `self` fits into `free` in every dimension.
    #[must_use]
    pub fn fits(self, free: Self) -> bool {
        self.cpu_millis <= free.cpu_millis && self.memory_bytes <= free.memory_bytes
    }
}

/// What the runtime enforces; zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Thousandths of a processor core; 0 = unlimited.
    pub cpu_millis: u64,
    /// Bytes of memory; 0 = unlimited.
    pub memory_bytes: u64,
    /// Processes and threads; 0 = unlimited.
    pub pids: u64,
}

/// Most processor a container may ask for, in thousandths: a thousand cores is a typing error.
pub const MAX_CPU_MILLIS: u64 = 1_000_000;
/// Most memory a container may ask for: 64 TiB.
pub const MAX_MEMORY_BYTES: u64 = 64 << 40;
/// Least memory limit that any engine accepts: 6 MiB (Docker's own floor).
pub const MIN_MEMORY_LIMIT: u64 = 6 << 20;

/// Checks reservation and limit against each other and against what any machine can have.
pub(crate) fn check(path: &str, reserve: Resources, limit: Limits, out: &mut InvalidList) {
    if reserve.cpu_millis > MAX_CPU_MILLIS {
        out.push(
            format!("{path}.reserve.cpu"),
            format!(
                "{} is more than any node has (at most {})",
                cpu(reserve.cpu_millis),
                cpu(MAX_CPU_MILLIS)
            ),
        );
    }
    if reserve.memory_bytes > MAX_MEMORY_BYTES {
        out.push(
            format!("{path}.reserve.memory"),
            format!(
                "{} is more than any node has (at most {})",
                memory(reserve.memory_bytes),
                memory(MAX_MEMORY_BYTES)
            ),
        );
    }
    if limit.cpu_millis != 0 && reserve.cpu_millis > limit.cpu_millis {
        out.push(
            format!("{path}.reserve.cpu"),
            format!(
                "reserves {} but is limited to {}: raise limit.cpu or lower reserve.cpu",
                cpu(reserve.cpu_millis),
                cpu(limit.cpu_millis)
            ),
        );
    }
    if limit.memory_bytes != 0 && reserve.memory_bytes > limit.memory_bytes {
        out.push(
            format!("{path}.reserve.memory"),
            format!(
                "reserves {} but is limited to {}: raise limit.memory or lower reserve.memory",
                memory(reserve.memory_bytes),
                memory(limit.memory_bytes)
            ),
        );
    }
    if limit.memory_bytes != 0 && limit.memory_bytes < MIN_MEMORY_LIMIT {
        out.push(
            format!("{path}.limit.memory"),
            format!("{} is too little to start anything: give at least 6MiB", memory(limit.memory_bytes)),
        );
    }
}

/// Reads `500m`, `2` or `0.5` as thousandths of a core.
///
/// # Errors
/// [`Invalid`] at `path` for anything else.
pub fn parse_cpu(path: &str, text: &str) -> Result<u64, Invalid> {
    let bad = || Invalid::new(path, format!("{text:?} is no amount of CPU: write 500m, 2 or 0.5"));
    let text_trim = text.trim();
    if let Some(millis) = text_trim.strip_suffix('m') {
        return millis.parse().map_err(|_| bad());
    }
    let (whole, fraction) = text_trim.split_once('.').unwrap_or((text_trim, ""));
    if fraction.len() > 3 || (whole.is_empty() && fraction.is_empty()) {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
    let thousandths: u64 =
        if fraction.is_empty() { 0 } else { format!("{fraction:0<3}").parse().map_err(|_| bad())? };
    whole.checked_mul(1000).and_then(|w| w.checked_add(thousandths)).ok_or_else(bad)
}

/// Reads `256MiB`, `1GB`, `512k` or a plain number of bytes.
///
/// `KiB MiB GiB TiB` (and `Ki Mi Gi Ti`) are powers of 1024, `kB MB GB TB` of 1000.
///
/// # Errors
/// [`Invalid`] at `path` for anything else.
pub fn parse_memory(path: &str, text: &str) -> Result<u64, Invalid> {
    let bad = || Invalid::new(path, format!("{text:?} is no size: write 256MiB, 1.5GiB, 512MB or bytes"));
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let factor: u64 = match unit.trim() {
        "" | "B" | "b" => 1,
        "k" | "kB" | "KB" => 1000,
        "KiB" | "Ki" | "K" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" | "Mi" | "M" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" | "Gi" | "G" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" | "Ti" | "T" => 1 << 40,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 6 {
        return Err(bad());
    }
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let mut total = whole.checked_mul(factor).ok_or_else(bad)?;
    if !fraction.is_empty() {
        let digits: u128 = fraction.parse().map_err(|_| bad())?;
        let part = digits * u128::from(factor) / 10u128.pow(fraction.len() as u32);
        total = total.checked_add(u64::try_from(part).map_err(|_| bad())?).ok_or_else(bad)?;
    }
    Ok(total)
}

/// `1.5` or `0.25`: cores, as users read them.
#[must_use]
pub fn cpu(millis: u64) -> String {
    let (whole, part) = (millis / 1000, millis % 1000);
    if part == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{part:03}");
    text.trim_end_matches('0').to_owned()
}

/// `256MiB`: the largest binary unit that stays readable.
#[must_use]
pub fn memory(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in UNITS {
        if bytes >= size {
            let tenths = (u128::from(bytes) * 10 / u128::from(size)) as u64;
            return if tenths.is_multiple_of(10) {
                format!("{}{unit}", tenths / 10)
            } else {
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes}B")
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPU, {}", cpu(self.cpu_millis), memory(self.memory_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_reads_millis_and_cores() {
        for (text, millis) in
            [("500m", 500), ("2", 2000), ("0.5", 500), (".25", 250), ("1.125", 1125), ("0", 0)]
        {
            assert_eq!(parse_cpu("cpu", text).unwrap(), millis, "{text}");
        }
        for bad in ["", "x", "1.2345", "-1", "m", ".", "99999999999999999999"] {
            assert!(parse_cpu("cpu", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_reads_binary_and_decimal_units() {
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("1.5GiB", 3 << 29),
            ("512MB", 512_000_000),
            ("10", 10),
            ("4k", 4000),
            ("1Gi", 1 << 30),
        ] {
            assert_eq!(parse_memory("m", text).unwrap(), bytes, "{text}");
        }
        for bad in ["", "MiB", "1XB", "-1MiB", "99999999999TiB"] {
            assert!(parse_memory("m", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_print_short() {
        assert_eq!(cpu(1500), "1.5");
        assert_eq!(cpu(2000), "2");
        assert_eq!(memory(256 << 20), "256MiB");
        assert_eq!(memory(3 << 29), "1.5GiB");
        assert_eq!(memory(12), "12B");
    }

    #[test]
    fn a_reservation_above_its_limit_is_refused() {
        let mut out = InvalidList::default();
        let limit = Limits { cpu_millis: 100, memory_bytes: 8 << 20, pids: 0 };
        check("resources", Resources { cpu_millis: 200, memory_bytes: 9 << 20 }, limit, &mut out);
        let paths: Vec<_> = out.0.iter().map(|i| i.path.as_str()).collect();
        assert_eq!(paths, ["resources.reserve.cpu", "resources.reserve.memory"]);
    }
}
