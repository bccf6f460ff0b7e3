//! A stream of operations: verbs by ratio, keys by distribution, values by size.

use std::sync::Arc;

use rand::Rng;

use crate::{KeyEncoding, Keys, Random, Values};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one key.
    Get,
    /// Writes one key.
    Put,
    /// Deletes one key.
    Delete,
    /// Reads keys from one on, in order.
    Scan,
    /// Reads one key, then writes it.
    Modify,
}

impl Verb {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// A stream of operations.
pub trait Source {
    /// The next operation.
    fn draw(&mut self) -> Operation<'_>;
}

/// Shares of the verbs; they are made to sum to 1. Each draw is one of its own: verb, key and
/// length are independent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Share of gets.
    pub get: f64,
    /// Share of puts.
    pub put: f64,
    /// Share of deletes.
    pub delete: f64,
    /// Share of scans.
    pub scan: f64,
}

/// One operation; its bytes are borrowed from the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// What to do.
    pub verb: Verb,
    /// To which key.
    pub key: &'a [u8],
    /// What to write; empty unless the verb is `Put` or `Modify`.
    pub value: &'a [u8],
    /// How many entries to read; 0 unless the verb is `Scan`.
    pub scan_entries: usize,
}

/// Makes the operations of one thread.
#[derive(Clone, Debug)]
pub struct Generator {
    mix: Mix,
    keys: Keys,
    encoding: KeyEncoding,
    values: Arc<Values>,
    scan_entries_max: usize,
    random: Random,
    key: Vec<u8>,
}

/// A generator that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGenerator {
    /// The shares are negative, not numbers, or all zero.
    #[error("the shares of get, put, delete and scan must be zero or more, and not all zero")]
    Mix,
    /// Two numbers would share a key.
    #[error("{encoding:?} has no key of its own for each of {count} numbers: use a wider one")]
    Encoding {
        /// The encoding.
        encoding: KeyEncoding,
        /// The number of keys.
        count: u64,
    },
}

impl Generator {
    /// A generator of `mix`; scans read 1 to `scan_entries_max` entries, uniformly.
    ///
    /// # Errors
    /// When the mix is no mix, or the encoding too narrow.
    pub fn new(
        mix: Mix,
        keys: Keys,
        encoding: KeyEncoding,
        values: impl Into<Arc<Values>>,
        scan_entries_max: usize,
        random: Random,
    ) -> Result<Generator, InvalidGenerator> {
        let shares = [mix.get, mix.put, mix.delete, mix.scan];
        let whole: f64 = shares.iter().sum();
        if shares.iter().any(|share| !share.is_finite() || *share < 0.0) || whole <= 0.0 {
            return Err(InvalidGenerator::Mix);
        }
        if !encoding.holds(keys.count()) {
            return Err(InvalidGenerator::Encoding { encoding, count: keys.count() });
        }
        let mix = Mix {
            get: mix.get / whole,
            put: mix.put / whole,
            delete: mix.delete / whole,
            scan: mix.scan / whole,
        };
        Ok(Generator {
            mix,
            keys,
            encoding,
            values: values.into(),
            scan_entries_max: scan_entries_max.max(1),
            random,
            key: Vec::new(),
        })
    }

    fn verb(&mut self) -> Verb {
        let drawn: f64 = self.random.random();
        let Mix { get, put, delete, .. } = self.mix;
        if drawn < get {
            Verb::Get
        } else if drawn < get + put {
            Verb::Put
        } else if drawn < get + put + delete || self.mix.scan == 0.0 {
            // Rounding may leave a sliver above the last share: it goes to the last verb that has
            // one.
            if delete > 0.0 {
                Verb::Delete
            } else if put > 0.0 {
                Verb::Put
            } else {
                Verb::Get
            }
        } else {
            Verb::Scan
        }
    }
}

impl Source for Generator {
    fn draw(&mut self) -> Operation<'_> {
        let verb = self.verb();
        let number = self.keys.draw(&mut self.random);
        self.encoding.encode(number, &mut self.key);
        let scan_entries =
            if verb == Verb::Scan { self.random.random_range(1..=self.scan_entries_max) } else { 0 };
        let value = if verb == Verb::Put { self.values.draw(&mut self.random) } else { &[] };
        Operation { verb, key: &self.key, value, scan_entries }
    }
}

#[cfg(test)]
mod tests;
