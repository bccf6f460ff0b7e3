//! The reference workload: a store of the metadata of objects, as the paper describes ZippyDB's.
//!
//! It shares no distribution with the model. Keys that belong to an object lie beside each other.
//! Who reads an object is likely to be followed by others soon, and what was read often is read
//! again: each read takes an object from a ring of those read before, from a window of recent
//! objects that moves through the key space, or from anywhere. Reads of an object take its keys one
//! after the other. Objects are made and deleted as a whole. More is asked for at some times. The
//! first key of an object has larger values, and popular objects have larger ones still.

use std::collections::VecDeque;

use rand::Rng;
use tombolo_format::checksum::mix64;
use tombolo_format::trace::{Asked, Event, Found};
use tombolo_workload::{Random, random};

use super::Events;

/// Shares of gets, puts, deletes and scans, of all operations: ZippyDB's.
pub(super) const SHARES: [(Asked, f64); 4] =
    [(Asked::Get, 0.78), (Asked::Put, 0.13), (Asked::Delete, 0.06), (Asked::Scan, 0.03)];
/// Reads that are remembered: an object that was read more often is in the ring more often.
const RING: usize = 1 << 14;

/// The bytes of a key: 48, of every fortieth group 90, in the order of numbers.
pub(super) fn key(number: u32, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(b"objects/");
    key.extend_from_slice(format!("{number:012}/").as_bytes());
    let bytes = if mix64(u64::from(number / 16)).is_multiple_of(40) { 90 } else { 48 };
    let mut word = u64::from(number);
    while key.len() < bytes {
        word = mix64(word.wrapping_add(1));
        let digits = format!("{word:016x}");
        key.extend_from_slice(&digits.as_bytes()[..digits.len().min(bytes - key.len())]);
    }
}

/// The next thing that is asked.
#[derive(Clone, Copy, Debug)]
struct Step {
    asked: Asked,
    number: u32,
    entries: u32,
}

#[derive(Debug)]
pub(super) struct Reference {
    random: Random,
    /// First keys of objects, ascending, and the number of keys at the end.
    objects: Vec<u32>,
    /// Sizes of values, 0 where a key is not there.
    sizes: Vec<u32>,
    ring: VecDeque<u32>,
    /// Where the window of recent objects begins.
    window: f64,
    steps: VecDeque<Step>,
    counts: [f64; 4],
    time_ns: u64,
    /// Whether more is asked for, and until when.
    is_busy: bool,
    until_ns: u64,
    key: Vec<u8>,
}

impl Reference {
    pub(super) fn new(keys: u32, seed: u64) -> Reference {
        let mut random = random(seed, 77);
        let (mut objects, mut next) = (Vec::new(), 0);
        while next < keys {
            objects.push(next);
            // Most objects are small, some have many blocks.
            let blocks = match random.random_range(0..10) {
                0..6 => random.random_range(1..=4),
                6..9 => random.random_range(8..=24),
                _ => random.random_range(40..=120),
            };
            next = next.saturating_add(blocks);
        }
        objects.push(keys);
        let mut reference = Reference {
            random,
            sizes: vec![0; keys as usize],
            ring: VecDeque::with_capacity(RING),
            window: 0.0,
            steps: VecDeque::new(),
            counts: [0.0; 4],
            time_ns: 0,
            is_busy: false,
            until_ns: 0,
            key: Vec::new(),
            objects,
        };
        for object in 0..reference.count() {
            // Some objects are gone at first.
            if !mix64(u64::from(object) ^ seed).is_multiple_of(20) {
                let (from, to) = reference.span(object);
                (from..to)
                    .for_each(|number| reference.sizes[number as usize] = reference.size(object, number));
            }
        }
        reference
    }

    /// Keys that are there, with the sizes of their values.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(&self.sizes).filter(|(_, size)| **size > 0).map(|(number, size)| (number, *size))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.objects.len() - 1).unwrap_or(u32::MAX)
    }

    fn span(&self, object: u32) -> (u32, u32) {
        (self.objects[object as usize], self.objects[object as usize + 1])
    }

    /// The size of a value: of a first key larger; the sum of two dice.
    fn size(&self, object: u32, number: u32) -> u32 {
        let dice = mix64(u64::from(number) ^ self.sizes.len() as u64);
        let (one, other) =
            (u32::try_from(dice % 24).unwrap_or(0), u32::try_from(dice >> 32).unwrap_or(0) % 24);
        let is_first = self.objects[object as usize] == number;
        let popular = if mix64(u64::from(object)).is_multiple_of(9) { 30 } else { 0 };
        10 + one + other + popular + if is_first { 40 } else { 0 }
    }

    /// An object that is read: one that was read before, a recent one, or any.
    fn read(&mut self) -> u32 {
        let count = self.count();
        let object = match self.random.random_range(0..100) {
            0..80 if !self.ring.is_empty() => self.ring[self.random.random_range(0..self.ring.len())],
            0..94 => {
                let width = f64::from(count) / 50.0;
                // The nearer to the head of the window, the more often.
                let back = self.random.random::<f64>().min(self.random.random::<f64>()) * width;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an object")]
                let object = (self.window + f64::from(count) - back) as u32;
                object % count
            }
            _ => self.random.random_range(0..count),
        };
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back(object);
        object
    }

    /// Puts the steps of the operation that is most behind its share.
    fn plan(&mut self) {
        let whole: f64 = self.counts.iter().sum();
        let behind =
            |(index, (_, share)): (usize, &(Asked, f64))| share - self.counts[index] / whole.max(1.0);
        let most = SHARES.iter().enumerate().max_by(|one, other| behind(*one).total_cmp(&behind(*other)));
        let (index, (asked, _)) = most.unwrap_or((0, &SHARES[0]));
        let asked = *asked;
        let object = match asked {
            Asked::Get | Asked::Scan => self.read(),
            Asked::Put => {
                // New objects are at the head of the window, which moves with writes.
                self.window = (self.window + 0.7) % f64::from(self.count());
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an object")]
                let head = self.window as u32;
                if self.random.random_bool(0.6) { head % self.count() } else { self.read() }
            }
            _ => self.random.random_range(0..self.count()),
        };
        let (from, to) = self.span(object);
        let entries = (to - from).max(1);
        let each = match asked {
            Asked::Scan => {
                self.steps.push_back(Step { asked, number: from, entries });
                0
            }
            // Readers stop early more often than not.
            Asked::Get => self.random.random_range(1..=entries).min(self.random.random_range(1..=16)),
            _ => entries.min(24),
        };
        (from..from + each).for_each(|number| self.steps.push_back(Step { asked, number, entries: 0 }));
        self.counts[index] += f64::from(each.max(1));
    }
}

impl Events for Reference {
    fn next(&mut self) -> Event<'_> {
        while self.steps.is_empty() {
            self.plan();
        }
        let Step { asked, number, entries } =
            self.steps.pop_front().unwrap_or(Step { asked: Asked::Get, number: 0, entries: 0 });
        if self.time_ns >= self.until_ns {
            self.is_busy = !self.is_busy;
            let seconds = if self.is_busy { 2..6 } else { 5..30 };
            self.until_ns = self.time_ns + self.random.random_range(seconds) * 1_000_000_000;
        }
        self.time_ns += self.random.random_range(0..if self.is_busy { 500_000 } else { 2_000_000 });
        let object = self.objects.partition_point(|first| *first <= number) - 1;
        let object = u32::try_from(object).unwrap_or(0);
        let before = self.sizes[number as usize];
        let mut value_bytes = 0;
        match asked {
            Asked::Put => {
                value_bytes = self.size(object, number);
                self.sizes[number as usize] = value_bytes;
            }
            Asked::Delete => self.sizes[number as usize] = 0,
            Asked::Get => value_bytes = before,
            _ => {}
        }
        let found = match asked {
            Asked::Get => Found::from(before > 0),
            _ => Found::Unknown,
        };
        key(number, &mut self.key);
        Event { value_bytes, entries, found, ..Event::new(self.time_ns, asked, 0, &self.key) }
    }
}
