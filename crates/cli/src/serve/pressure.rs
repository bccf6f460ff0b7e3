//! Whether the host is short of memory, as Linux tells it (pressure stall information), and how
//! much a node lends then.

use std::time::{Duration, Instant};

/// Share of time, in per cent over ten seconds, in which some process waits for memory; from here
/// on the host is short of it.
pub const SHORT_PERCENT: f64 = 10.0;
/// How long a change is given to show.
const SETTLE: Duration = Duration::from_secs(10);
/// How long memory must be plenty before more is lent again.
const CALM: Duration = Duration::from_secs(60);

/// What the kernel says of this process's control group, or of the host; `None` where it does not
/// say.
pub fn read() -> Option<f64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok();
    let group =
        own.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::"))).unwrap_or("/");
    let paths = [
        format!("/sys/fs/cgroup{}/memory.pressure", group.trim_end_matches('/')),
        "/proc/pressure/memory".to_owned(),
    ];
    paths.iter().find_map(|path| parse(&std::fs::read_to_string(path).ok()?))
}

/// The figure of `some avg10=1.23 …`.
fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// How much is lent while memory is short, and after.
#[derive(Debug)]
pub struct Lending {
    bytes_max: u64,
    bytes: u64,
    changed: Option<Instant>,
    short: Option<Instant>,
}

impl Lending {
    /// Lends all.
    pub fn new(bytes_max: u64) -> Lending {
        Lending { bytes_max, bytes: bytes_max, changed: None, short: None }
    }

    /// What to lend from here on, when that changes: half of what regions take while memory is
    /// short, and twice as much again after a minute of plenty.
    pub fn look(&mut self, pressure: Option<f64>, bytes_taken: u64, now: Instant) -> Option<u64> {
        let since =
            |moment: Option<Instant>| moment.map_or(Duration::MAX, |moment| now.duration_since(moment));
        let is_short = pressure.is_some_and(|percent| percent >= SHORT_PERCENT);
        if is_short {
            self.short = Some(now);
        }
        let next = if is_short && since(self.changed) >= SETTLE {
            self.bytes.min(bytes_taken) / 2
        } else if self.bytes < self.bytes_max && since(self.short) >= CALM && since(self.changed) >= CALM {
            (self.bytes.max(self.bytes_max / 16) * 2).min(self.bytes_max)
        } else {
            self.bytes
        };
        if next == self.bytes {
            return None;
        }
        (self.bytes, self.changed) = (next, Some(now));
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=17\nfull avg10=1.00 avg60=0.00 \
            avg300=0.00 total=3\n";
        assert_eq!(parse(text), Some(12.5));
        assert_eq!(parse("some nothing\n"), None);
    }

    #[test]
    fn memory_is_given_back_while_it_is_short_and_lent_again_after() {
        let mut lending = Lending::new(1 << 30);
        let begin = Instant::now();
        let mut look = |pressure, taken, seconds| {
            lending.look(Some(pressure), taken, begin + Duration::from_secs(seconds))
        };
        assert_eq!(look(0.0, 512 << 20, 0), None);
        assert_eq!(look(40.0, 512 << 20, 1), Some(256 << 20));
        assert_eq!(look(40.0, 512 << 20, 2), None, "it takes a while");
        assert_eq!(look(40.0, 256 << 20, 12), Some(128 << 20));
        assert_eq!(look(0.0, 128 << 20, 30), None);
        assert_eq!(look(0.0, 128 << 20, 80), Some(256 << 20));
        assert_eq!(look(0.0, 128 << 20, 81), None);
        assert_eq!(look(0.0, 128 << 20, 150), Some(512 << 20));
        assert_eq!(look(0.0, 128 << 20, 220), Some(1 << 30));
        assert_eq!(look(0.0, 128 << 20, 300), None);
    }
}
