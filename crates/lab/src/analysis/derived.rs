//! What follows from the sampled keys.

use tombolo_workload::reuse::{MissRatio, miss_ratio_at};
use tombolo_workload::sketch::{Counts, correlation};

use super::{Analysis, KeyspaceAnalysis, SLOTS, SampledKey};

/// Accesses by range of keys and slot of time.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// First keys of the ranges.
    pub ranges: Vec<Vec<u8>>,
    /// Of each range, accesses in each slot of time, in the scale of the sample.
    pub accesses: Vec<[u64; SLOTS]>,
}

/// Prefixes of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefixes {
    /// Their bytes.
    pub bytes: usize,
    /// Distinct ones among the sampled keys.
    pub distinct: usize,
    /// Those of most accesses, with the share of all accesses.
    pub top: Vec<(Vec<u8>, f64)>,
}

#[allow(clippy::cast_precision_loss, reason = "statistics")]
impl KeyspaceAnalysis {
    /// How many sampled keys were accessed so and so often.
    #[must_use]
    pub fn access_counts(&self, accesses: impl Fn(&SampledKey) -> u64) -> Counts {
        let mut counts = Counts::default();
        self.keys.iter().map(accesses).filter(|count| *count > 0).for_each(|count| counts.add(count));
        counts
    }

    /// The share of keys to which so much of all accesses goes.
    #[must_use]
    pub fn hot_set(&self, share_of_accesses: f64) -> f64 {
        let mut counts: Vec<u64> = self.keys.iter().map(SampledKey::accesses).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let wanted = counts.iter().sum::<u64>() as f64 * share_of_accesses;
        let mut seen = 0.0;
        let hot = counts.iter().take_while(|count| {
            let is_needed = seen < wanted;
            seen += **count as f64;
            is_needed
        });
        hot.count() as f64 / counts.len().max(1) as f64
    }

    /// The share of accesses that the hottest keys have: points of a curve, by share of keys.
    #[must_use]
    pub fn hotness(&self) -> Vec<(f64, f64)> {
        let mut counts: Vec<u64> = self.keys.iter().map(SampledKey::accesses).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let (whole, keys) = (counts.iter().sum::<u64>().max(1) as f64, counts.len().max(1) as f64);
        let (step, mut seen, mut points) = (counts.len().div_ceil(200).max(1), 0, vec![(0.0, 0.0)]);
        for (index, count) in counts.iter().enumerate() {
            seen += count;
            if (index + 1) % step == 0 || index + 1 == counts.len() {
                points.push(((index + 1) as f64 / keys, seen as f64 / whole));
            }
        }
        points
    }

    /// Accesses by range and time: ranges of equally many sampled keys.
    #[must_use]
    pub fn heat_map(&self, ranges: usize) -> HeatMap {
        let width = self.keys.len().div_ceil(ranges.max(1)).max(1);
        let mut map = HeatMap { ranges: Vec::new(), accesses: Vec::new() };
        for part in self.keys.chunks(width) {
            let mut row = [0; SLOTS];
            for key in part {
                row.iter_mut().zip(key.slots).for_each(|(sum, count)| *sum += u64::from(count));
            }
            map.ranges.push(part[0].key.to_vec());
            map.accesses.push(row);
        }
        map
    }

    /// Prefixes of a length.
    #[must_use]
    pub fn prefixes(&self, bytes: usize) -> Prefixes {
        let whole = self.keys.iter().map(SampledKey::accesses).sum::<u64>().max(1) as f64;
        let mut all: Vec<(Vec<u8>, f64)> = Vec::new();
        for key in &self.keys {
            let prefix = &key.key[..bytes.min(key.key.len())];
            let share = key.accesses() as f64 / whole;
            match all.last_mut() {
                Some((last, sum)) if last == prefix => *sum += share,
                _ => all.push((prefix.to_vec(), share)),
            }
        }
        let distinct = all.len();
        all.sort_by(|one, other| other.1.total_cmp(&one.1));
        all.truncate(5);
        Prefixes { bytes, distinct, top: all }
    }

    /// Correlations over sampled keys: reads with writes, and accesses with the size of the value.
    #[must_use]
    pub fn correlations(&self) -> [(&'static str, f64); 3] {
        let pairs = |one: fn(&SampledKey) -> f64, other: fn(&SampledKey) -> f64| {
            correlation(self.keys.iter().map(|key| (one(key), other(key))))
        };
        let sized = self.keys.iter().filter(|key| key.value_bytes > 0);
        let sized = sized.map(|key| (key.accesses() as f64, f64::from(key.value_bytes)));
        [
            ("reads and writes of a key", pairs(|key| key.reads.into(), |key| key.writes.into())),
            ("reads and scans of a key", pairs(|key| key.reads.into(), |key| key.scans.into())),
            ("accesses of a key and the size of its value", correlation(sized)),
        ]
    }
}

impl Analysis {
    /// Miss ratios of an LRU cache of so many bytes.
    #[must_use]
    pub fn miss_ratio(&self, bytes: u64) -> f64 {
        miss_ratio_at(&self.reuse.by_bytes(), bytes)
    }

    /// The curve of them.
    #[must_use]
    pub fn miss_ratios(&self) -> Vec<MissRatio> {
        self.reuse.by_bytes()
    }

    /// Seconds from the first event to the newest.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        std::time::Duration::from_nanos(self.span_ns).as_secs_f64()
    }
}
