//! A trace, seen: one pass, in memory that does not grow with it.
//!
//! `event → counts of its keyspace; every event → distinct keys, frequent keys, reuse distances;
//! the events of a sample of keys → access counts, hot ranges, correlations, heat map`. Keys are
//! sampled by hash, such that a sample has all that happens to a key. Where there are few keys the
//! sample is the whole, and all is exact.

mod derived;

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo_format::checksum::{key_hash, mix64};
use tombolo_format::trace::{Asked, Event, Found, Header};
use tombolo_workload::Latencies;
use tombolo_workload::reuse::Reuse;
use tombolo_workload::sketch::{Counts, Distinct, Frequent, HashedMap, Heavy, Series};

pub use derived::{HeatMap, Prefixes};

/// Slots of time in which accesses of sampled keys are told apart.
pub const SLOTS: usize = 32;
/// Keyspaces that are told apart; the rest are the last one's.
const KEYSPACES_MAX: usize = 64;
/// Bytes of a sampled key in the mean, above which fewer keys are sampled.
const KEY_BYTES_MEAN_MAX: usize = 1 << 10;
const SERIES_SLOTS: usize = 1024;
const FIRST_SLOT_NS: u64 = 1_000_000;
const OPERATIONS: usize = Asked::ALL.len();

/// How much memory an analysis takes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Keys of the sample.
    pub sampled_keys_max: usize,
    /// Keys whose reuse distances are followed.
    pub followed_keys_max: usize,
    /// Counters of frequent keys, of each keyspace.
    pub frequent_keys_max: usize,
}

impl Default for Bounds {
    /// About 200 MiB for keys of a hundred bytes.
    fn default() -> Bounds {
        Bounds { sampled_keys_max: 300_000, followed_keys_max: 200_000, frequent_keys_max: 1000 }
    }
}

/// What happened to a sampled key.
#[derive(Clone, Debug)]
pub struct SampledKey {
    /// The key.
    pub key: Box<[u8]>,
    /// Reads of it.
    pub reads: u32,
    /// Puts and merges.
    pub writes: u32,
    /// Deletes.
    pub deletes: u32,
    /// Walks that began there.
    pub scans: u32,
    /// Bytes of its newest value.
    pub value_bytes: u32,
    /// Accesses by time.
    pub slots: [u32; SLOTS],
    last: Asked,
}

impl SampledKey {
    /// All accesses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes) + u64::from(self.deletes) + u64::from(self.scans)
    }
}

/// Of one keyspace.
#[derive(Debug)]
pub struct KeyspaceAnalysis {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Events by operation, in the order of [`Asked::ALL`].
    pub operations: [u64; OPERATIONS],
    /// Reads that found something, and that did not.
    pub found: [u64; 2],
    /// About how many distinct keys there were.
    pub distinct_keys: f64,
    /// Sizes of keys, of all events.
    pub key_bytes: Counts,
    /// Sizes of values that were written.
    pub value_bytes: Counts,
    /// Sizes of values that were read, of those that say so.
    pub read_bytes: Counts,
    /// Entries of scans.
    pub scan_entries: Counts,
    /// Latencies by operation, where the trace has them.
    pub latencies: Vec<(Asked, Latencies)>,
    /// Reads and writes over time.
    pub reads: Series,
    /// See `reads`.
    pub writes: Series,
    /// The most frequent keys.
    pub top: Vec<Heavy>,
    /// Distinct keys until the end of each slot of time.
    pub distinct_over_time: Vec<f64>,
    /// The sampled keys, in order.
    pub keys: Vec<SampledKey>,
    /// How often an operation on a key followed another one on it.
    pub follows: [[u64; OPERATIONS]; OPERATIONS],
}

impl KeyspaceAnalysis {
    /// All events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Events of an operation.
    #[must_use]
    pub fn of(&self, asked: Asked) -> u64 {
        self.operations[asked as usize - 1]
    }
}

/// A trace, seen.
#[derive(Debug)]
pub struct Analysis {
    /// What the trace is.
    pub header: Header,
    /// Events.
    pub events: u64,
    /// From the first to the newest.
    pub span_ns: u64,
    /// Events that are older than the one before them: the clock went back, or threads mixed.
    pub backwards: u64,
    /// By number.
    pub keyspaces: Vec<KeyspaceAnalysis>,
    /// Width of a slot of time of sampled keys.
    pub slot_ns: u64,
    /// The share of keys in the sample: 1 is all.
    pub sampled: f64,
    /// Reuse distances over all keyspaces.
    pub reuse: Reuse,
}

/// The counts of a keyspace, so far.
#[derive(Debug)]
struct State {
    seen: KeyspaceAnalysis,
    distinct: Distinct,
    frequent: Frequent,
    distinct_slots: Vec<f64>,
}

/// Takes the events of a trace, one after the other.
#[derive(Debug)]
pub struct Analyser {
    bounds: Bounds,
    header: Header,
    names: BTreeMap<u32, String>,
    states: BTreeMap<u32, State>,
    sample: HashedMap<u64, (u32, SampledKey)>,
    /// Bytes of its keys.
    sample_bytes: usize,
    /// Keys are sampled whose mixed hash is below it.
    threshold: u64,
    slot_ns: u64,
    /// The slot up to which distinct keys were counted.
    counted_slot: usize,
    reuse: Reuse,
    events: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    before_ns: u64,
    backwards: u64,
}

fn state(id: u32, name: String, bounds: &Bounds) -> State {
    State {
        seen: KeyspaceAnalysis {
            id,
            name,
            operations: [0; OPERATIONS],
            found: [0; 2],
            distinct_keys: 0.0,
            key_bytes: Counts::default(),
            value_bytes: Counts::default(),
            read_bytes: Counts::default(),
            scan_entries: Counts::default(),
            latencies: Vec::new(),
            reads: Series::new(FIRST_SLOT_NS, SERIES_SLOTS),
            writes: Series::new(FIRST_SLOT_NS, SERIES_SLOTS),
            top: Vec::new(),
            distinct_over_time: Vec::new(),
            keys: Vec::new(),
            follows: [[0; OPERATIONS]; OPERATIONS],
        },
        distinct: Distinct::default(),
        frequent: Frequent::new(bounds.frequent_keys_max),
        distinct_slots: Vec::new(),
    }
}

impl Analyser {
    /// Of a trace with this header.
    #[must_use]
    pub fn new(header: Header, bounds: Bounds) -> Analyser {
        Analyser {
            reuse: Reuse::new(bounds.followed_keys_max),
            bounds,
            header,
            names: BTreeMap::new(),
            states: BTreeMap::new(),
            sample: HashedMap::default(),
            sample_bytes: 0,
            threshold: u64::MAX,
            slot_ns: FIRST_SLOT_NS,
            counted_slot: 0,
            events: 0,
            first_ns: None,
            last_ns: 0,
            before_ns: 0,
            backwards: 0,
        }
    }

    /// Names of keyspaces, as far as they are known.
    pub fn name(&mut self, names: &BTreeMap<u32, String>) {
        if names.len() != self.names.len() {
            self.names.clone_from(names);
        }
    }

    /// Takes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        self.events += 1;
        let first = *self.first_ns.get_or_insert(event.time_ns);
        self.backwards += u64::from(event.time_ns < self.before_ns);
        self.before_ns = event.time_ns;
        let time = event.time_ns.saturating_sub(first);
        self.last_ns = self.last_ns.max(time);
        while time / self.slot_ns >= SLOTS as u64 {
            self.widen();
        }
        let slot = usize::try_from(time / self.slot_ns).unwrap_or(0);
        if slot > self.counted_slot {
            self.count_distinct(slot);
        }
        let id = match self.states.len() < KEYSPACES_MAX || self.states.contains_key(&event.keyspace) {
            true => event.keyspace,
            false => self.states.last_key_value().map_or(event.keyspace, |(id, _)| *id),
        };
        let (names, bounds, ended) = (&self.names, &self.bounds, self.counted_slot);
        let state = self.states.entry(id).or_insert_with(|| {
            let name = names.get(&id).cloned().unwrap_or_else(|| format!("keyspace {id}"));
            State { distinct_slots: vec![0.0; ended], ..state(id, name, bounds) }
        });
        let hash = mix64(key_hash(event.key) ^ u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        count(state, event, time, hash);
        let bytes = event.key.len() as u64 + u64::from(event.value_bytes);
        if event.asked != Asked::RangeDelete {
            self.reuse.access(hash, bytes);
        }
        if hash < self.threshold {
            self.sample_bytes += sample(&mut self.sample, state, event, hash, slot);
            let bytes_max = self.bounds.sampled_keys_max.saturating_mul(KEY_BYTES_MEAN_MAX);
            while self.sample.len() > self.bounds.sampled_keys_max || self.sample_bytes > bytes_max {
                self.threshold /= 2;
                let threshold = self.threshold;
                self.sample.retain(|hash, _| *hash < threshold);
                self.sample_bytes = self.sample.values().map(|(_, key)| key.key.len()).sum();
            }
        }
    }

    fn widen(&mut self) {
        self.slot_ns = self.slot_ns.saturating_mul(2);
        self.counted_slot /= 2;
        for (_, key) in self.sample.values_mut() {
            for slot in 0..SLOTS {
                let pair = [2 * slot, 2 * slot + 1].map(|from| key.slots.get(from).copied().unwrap_or(0));
                key.slots[slot] = pair[0].saturating_add(pair[1]);
            }
        }
        for state in self.states.values_mut() {
            // A slot whose second half has not ended has not ended either.
            state.distinct_slots = state.distinct_slots.chunks_exact(2).map(|pair| pair[1]).collect();
        }
    }

    /// A slot of time has ended, or several.
    fn count_distinct(&mut self, slot: usize) {
        for state in self.states.values_mut() {
            let estimate = state.distinct.estimate();
            state.distinct_slots.resize(slot, estimate);
        }
        self.counted_slot = slot;
    }

    /// What was seen.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    pub fn finish(mut self) -> Analysis {
        let mut keyspaces: Vec<KeyspaceAnalysis> = Vec::with_capacity(self.states.len());
        let mut keys: BTreeMap<u32, Vec<SampledKey>> = BTreeMap::new();
        for (id, key) in std::mem::take(&mut self.sample).into_values() {
            keys.entry(id).or_default().push(key);
        }
        for (id, state) in std::mem::take(&mut self.states) {
            let mut seen = state.seen;
            seen.name = self.names.get(&id).cloned().unwrap_or(seen.name);
            seen.distinct_keys = state.distinct.estimate();
            seen.top = state.frequent.top(100);
            seen.distinct_over_time = state.distinct_slots;
            seen.distinct_over_time.push(seen.distinct_keys);
            seen.keys = keys.remove(&id).unwrap_or_default();
            seen.keys.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            if self.threshold == u64::MAX {
                seen.distinct_keys = seen.keys.len() as f64;
            }
            keyspaces.push(seen);
        }
        Analysis {
            header: self.header,
            events: self.events,
            span_ns: self.last_ns,
            backwards: self.backwards,
            keyspaces,
            slot_ns: self.slot_ns,
            sampled: if self.threshold == u64::MAX { 1.0 } else { self.threshold as f64 / u64::MAX as f64 },
            reuse: self.reuse,
        }
    }
}

fn count(state: &mut State, event: &Event<'_>, time: u64, hash: u64) {
    let seen = &mut state.seen;
    seen.operations[event.asked as usize - 1] += 1;
    seen.key_bytes.add(event.key.len() as u64);
    if event.asked.is_write() {
        seen.writes.add(time);
        if matches!(event.asked, Asked::Put | Asked::Merge) {
            seen.value_bytes.add(event.value_bytes.into());
        }
    } else {
        seen.reads.add(time);
        if event.asked.is_scan() {
            seen.scan_entries.add(event.entries.into());
        } else if event.found == Found::Yes {
            seen.read_bytes.add(event.value_bytes.into());
        }
        match event.found {
            Found::Yes => seen.found[0] += 1,
            Found::No => seen.found[1] += 1,
            Found::Unknown => {}
        }
    }
    if event.latency_ns > 0 {
        let at = seen.latencies.iter().position(|(asked, _)| *asked == event.asked);
        let at = at.unwrap_or_else(|| {
            seen.latencies.push((event.asked, Latencies::new()));
            seen.latencies.len() - 1
        });
        seen.latencies[at].1.record(Duration::from_nanos(event.latency_ns));
    }
    state.distinct.add(hash);
    state.frequent.add(hash, event.key);
}

/// Says how many bytes the sample has more.
fn sample(
    sample: &mut HashedMap<u64, (u32, SampledKey)>,
    state: &mut State,
    event: &Event<'_>,
    hash: u64,
    slot: usize,
) -> usize {
    let mut is_new = false;
    let (_, key) = sample.entry(hash).or_insert_with(|| {
        is_new = true;
        let key = SampledKey {
            key: event.key.into(),
            reads: 0,
            writes: 0,
            deletes: 0,
            scans: 0,
            value_bytes: 0,
            slots: [0; SLOTS],
            last: event.asked,
        };
        (state.seen.id, key)
    });
    if !is_new {
        state.seen.follows[key.last as usize - 1][event.asked as usize - 1] += 1;
    }
    key.last = event.asked;
    key.slots[slot] = key.slots[slot].saturating_add(1);
    let counter = match event.asked {
        Asked::Get | Asked::MultiGet | Asked::Block => &mut key.reads,
        Asked::Put | Asked::Merge => &mut key.writes,
        Asked::Delete | Asked::SingleDelete | Asked::RangeDelete => &mut key.deletes,
        Asked::Scan | Asked::ScanBack => &mut key.scans,
    };
    *counter = counter.saturating_add(1);
    if event.value_bytes > 0 && !event.asked.is_scan() {
        key.value_bytes = event.value_bytes;
    }
    if is_new { key.key.len() } else { 0 }
}

#[cfg(test)]
mod tests;
