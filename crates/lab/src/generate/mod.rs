//! A workload made from a model.
//!
//! A key is drawn by its class and range, or by how recently it was accessed. Keys are numbers in
//! order, so that ranges lie beside each other as they did, and the keys that nobody asks for lie
//! between those that somebody does.

mod keyspace;
mod placement;
mod recent;

use std::sync::Arc;

use rand::Rng;
use tombolo_format::trace::{Asked, Event, Header};
use tombolo_workload::{Random, random};

use self::keyspace::KeyspaceGenerator;
pub(crate) use self::keyspace::class_scores;
use crate::analysis::{Analyser, Analysis, Bounds};
use crate::model::{Bursts, Model, ModelError, PHASES, Rate};

/// Bursts that begin or end between two events; beyond, nobody notices them.
const TURNS_MAX: usize = 64;

/// Draws the events of a model.
#[derive(Debug)]
pub struct Generator {
    keyspaces: Vec<KeyspaceGenerator>,
    /// Ends of their shares; the last is 1.
    ends: Vec<f64>,
    random: Random,
    rate: Option<Rate>,
    bursts: Option<Bursts>,
    /// Whether there is a burst, and until when.
    is_burst: bool,
    until_ns: f64,
    seconds: f64,
    events_per_second: f64,
    time_ns: f64,
    key: Vec<u8>,
    names: Option<Names>,
}

/// Gives the bytes of a key: of its keyspace and number.
pub type NameKey = Arc<dyn Fn(u32, u64, &mut Vec<u8>) + Send + Sync>;

struct Names(NameKey);

impl std::fmt::Debug for Names {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("names of keys")
    }
}

impl Generator {
    /// Of a model; the same seed draws the same events.
    ///
    /// # Errors
    /// For a model that asks for nothing.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub fn new(model: &Model, seed: u64) -> Result<Generator, ModelError> {
        let (mut keyspaces, mut ends, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (index, keyspace) in model.keyspaces.iter().enumerate() {
            keyspaces.push(KeyspaceGenerator::new(u32::try_from(index).unwrap_or(u32::MAX), keyspace)?);
            sum += keyspace.share;
            ends.push(sum);
        }
        if keyspaces.is_empty() || sum <= 0.0 {
            return Err(ModelError("it has no keyspace that is accessed".to_owned()));
        }
        ends.iter_mut().for_each(|end| *end /= sum);
        let seconds = if model.seconds > 0.0 { model.seconds } else { 1.0 };
        Ok(Generator {
            keyspaces,
            ends,
            random: random(seed, 0),
            rate: model.rate,
            bursts: model.bursts,
            is_burst: true,
            until_ns: 0.0,
            seconds,
            events_per_second: (model.events as f64 / seconds).max(1e-9),
            time_ns: 0.0,
            key: Vec::new(),
            names: None,
        })
    }

    /// Takes the bytes of keys from the caller: those of a database that is there.
    pub fn name_keys(&mut self, name: NameKey) {
        self.names = Some(Names(name));
    }

    /// How many keys a keyspace has, with those that nobody asks for: their numbers are below it.
    #[must_use]
    pub fn keys(&self, keyspace: usize) -> u64 {
        self.keyspaces.get(keyspace).map_or(0, |keyspace| keyspace.keys)
    }

    /// Number and name of the keyspaces.
    pub fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        self.keyspaces.iter().map(|keyspace| (keyspace.id, keyspace.name.as_str()))
    }

    /// Operations in a second at this time.
    fn rate_now(&mut self) -> f64 {
        let rate = match &self.rate {
            Some(rate) => {
                let seconds = self.time_ns / 1e9;
                (rate.a * (rate.b * seconds + rate.c).sin() + rate.d).max(rate.d / 100.0)
            }
            None => self.events_per_second,
        };
        let Some(Bursts { factor, seconds, every }) = self.bursts else { return rate };
        for _ in 0..TURNS_MAX {
            if self.time_ns < self.until_ns {
                break;
            }
            self.is_burst = !self.is_burst;
            let mean = if self.is_burst { seconds } else { (every - seconds).max(every / 100.0) };
            self.until_ns += -(1.0 - self.random.random::<f64>()).ln() * mean * 1e9 + 1.0;
        }
        // On the whole as many as without bursts.
        let between = rate / (1.0 + (factor - 1.0) * seconds / every);
        if self.is_burst { between * factor } else { between }
    }

    /// The part of the model's time that this is in.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of parts")]
    fn phase(&self) -> usize {
        (self.time_ns / 1e9 / self.seconds * PHASES as f64) as usize % PHASES
    }

    /// The next event. Its key is lent until the one after it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, and sizes")]
    pub fn draw(&mut self) -> Event<'_> {
        let (phase, rate) = (self.phase(), self.rate_now());
        let drawn: f64 = self.random.random();
        let at = self.ends.partition_point(|end| *end < drawn).min(self.keyspaces.len() - 1);
        let keyspace = &mut self.keyspaces[at];
        let number = keyspace.number(phase, &mut self.random);
        let asked = keyspace.asked(number, &mut self.random);
        match &self.names {
            Some(Names(name)) => name(keyspace.id, number, &mut self.key),
            None => keyspace.key(number, &mut self.key),
        }
        let is_read = matches!(asked, Asked::Get | Asked::MultiGet);
        if is_read && keyspace.is_missing(number) {
            // A key between two others, which nobody writes: who finds nothing once, asks again for
            // the same.
            match self.key.last_mut() {
                Some(last) if keyspace.has_tails => *last ^= 0xff,
                _ => self.key.push(0),
            }
        }
        let time_ns = self.time_ns as u64;
        self.time_ns += -(1.0 - self.random.random::<f64>()).ln() * 1e9 / rate.max(1e-9);
        let size = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (value_bytes, entries) = match asked {
            Asked::Put | Asked::Merge => (size(keyspace.value_bytes(number, &mut self.random)), 0),
            Asked::Scan | Asked::ScanBack => (0, size(keyspace.scan_entries.draw(&mut self.random))),
            _ => (0, 0),
        };
        Event { value_bytes, entries, ..Event::new(time_ns, asked, keyspace.id, &self.key) }
    }

    /// Each key of all keyspaces, in order, with the size of its value: what was there before.
    pub fn load(&self, mut each: impl FnMut(u32, &[u8], u32) -> bool) {
        let (mut key, mut random) = (Vec::new(), random(1, 1));
        for keyspace in &self.keyspaces {
            for number in 0..keyspace.keys {
                match &self.names {
                    Some(Names(name)) => name(keyspace.id, number, &mut key),
                    None => keyspace.key(number, &mut key),
                }
                let bytes = keyspace.value_bytes(number, &mut random);
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                if !each(keyspace.id, &key, bytes) {
                    return;
                }
            }
        }
    }

    /// What so many events of a model look like; nothing of a model that asks for nothing.
    #[must_use]
    pub fn trial(model: &Model, seed: u64, events: u64, header: Header, bounds: Bounds) -> Analysis {
        let mut analyser = Analyser::new(header, bounds);
        if let Ok(mut generator) = Generator::new(model, seed) {
            (0..events).for_each(|_| analyser.add(&generator.draw()));
        }
        analyser.finish()
    }
}

#[cfg(test)]
mod tests;
