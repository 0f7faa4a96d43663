//! What the measurements share: workloads that bring their own input, and figures that can be trusted.
//!
//! Contenders run side by side in one process run, in rounds (A B C, A B C, ..), and medians are quoted with their spread:
//! machines drift, ratios within a round don't. CPU time stands beside wall time, because wall time on a shared machine is
//! noise.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::time::Duration;

use cutwater_engine::error::SourceError;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::{Clock, SplitMix, SystemClock};

/// CPU time of this process so far, all threads together.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A measured piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figure {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
}

/// Measures `work`.
pub fn measure(work: impl FnOnce()) -> Figure {
    let clock = SystemClock::new();
    let (wall, cpu) = (clock.monotonic(), cpu_time());
    work();
    Figure { wall: clock.monotonic() - wall, cpu: cpu_time() - cpu }
}

/// Minimum, median and maximum.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

/// The spread of `values`.
///
/// # Panics
/// Without values.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    Spread { min: values[0], median: values[values.len() / 2], max: values[values.len() - 1] }
}

/// The machine in one line: cores, and the type of the file system below `path`.
pub fn machine(path: &std::path::Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kind = rustix::fs::statfs(path).map(|s| format!("{:#x}", s.f_type)).unwrap_or_else(|e| e.to_string());
    format!("{cores} cores, file system type {kind} below {}", path.display())
}

/// Pins this thread to the core of this number, as the engine does with its workers.
pub fn pin(index: usize) {
    if let Some(core) = core_affinity::get_core_ids().and_then(|cores| cores.get(index).copied()) {
        core_affinity::set_for_current(core);
    }
}

/// A table with right-aligned columns, to be printed.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        for (c, cell) in row.iter().enumerate().take(columns) {
            let pad = width(c) - cell.chars().count();
            let (left, right) = if c == 0 { (0, pad) } else { (pad, 0) };
            let _ = write!(out, "{}{cell}{}  ", " ".repeat(left), " ".repeat(right));
        }
        out.push('\n');
    }
    out
}

/// Uniform keys below `keys`: record i of a split is the same on every run and whoever reads it.
#[derive(Clone, Copy, Debug)]
pub struct UniformKeys {
    /// Number of different keys.
    pub keys: u64,
    /// Number of splits.
    pub splits: u64,
    /// Records per split.
    pub per_split: u64,
}

impl UniformKeys {
    /// The generator of a split, standing at record `from`.
    pub fn generator(&self, split: u64, from: u64) -> impl FnMut() -> u64 + use<> {
        let keys = self.keys;
        // SplitMix's state advances by a constant, so record i can be reached without the ones before it.
        let mut random = SplitMix::new((split << 48).wrapping_add(from.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        move || random.below(keys)
    }
}

struct UniformReader {
    next: Box<dyn FnMut() -> u64>,
    at: u64,
    end: u64,
}

impl Source for UniformKeys {
    type Item = u64;

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok((0..self.splits).map(|s| format!("{s:04}")).collect())
    }

    fn open(&self, split: &str, position: Option<&[u8]>, _: Waker) -> Result<Box<dyn Reader<Item = u64>>, SourceError> {
        let bad = |e: &dyn std::fmt::Display| SourceError::fatal(format!("split {split:?}"), e);
        let number = split.parse().map_err(|e| bad(&e))?;
        let at = match position {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes.try_into().map_err(|e| bad(&e))?),
        };
        Ok(Box::new(UniformReader { next: Box::new(self.generator(number, at)), at, end: self.per_split }))
    }
}

impl Reader for UniformReader {
    type Item = u64;

    fn read(&mut self, out: &mut Vec<u64>, max: usize) -> Result<Read, SourceError> {
        let count = (self.end - self.at).min(max as u64);
        let next = &mut self.next;
        out.extend((0..count).map(|_| next()));
        self.at += count;
        Ok(if self.at == self.end { Read::Exhausted } else { Read::More })
    }

    fn position(&self) -> Vec<u8> {
        self.at.to_le_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_reached_in_the_middle_goes_on_as_one_that_came_there() {
        let workload = UniformKeys { keys: 1000, splits: 2, per_split: 100 };
        let mut whole = workload.generator(1, 0);
        let all: Vec<u64> = (0..100).map(|_| whole()).collect();
        let mut rest = workload.generator(1, 40);
        assert_eq!((0..60).map(|_| rest()).collect::<Vec<_>>(), all[40..]);
    }
}
