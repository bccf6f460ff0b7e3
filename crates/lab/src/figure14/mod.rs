//! Figure 14 of the paper: how far benchmarks are from the workload that they stand for, by what
//! they cost on the same database.
//!
//! A reference workload is made, its first half is recorded, and a model and eight baselines are
//! fitted to it. Then its second half and each of them are done on equal databases with equal
//! caches. The paper's order of the eight is: four of YCSB's distributions over all keys, then its
//! own four, of which the last has both hot ranges and hot keys together.

mod baselines;
mod reference;

use std::sync::Arc;

use tombolo_format::trace::{Asked, Event, Header, TracedKeys};

use self::baselines::{Baseline, Kind};
use self::reference::Reference;
use crate::analysis::{Analyser, Analysis, Bounds};
use crate::fitting::{KeysThere, fit_among};
use crate::generate::Generator;
use crate::model::{Model, ModelError};

/// What the costs of all others are compared with.
pub const REPLAY: &str = "replay";
/// The model.
pub const MODEL: &str = "model";

/// Keys that are there, in order, with the sizes of their values.
type Live = Arc<Vec<(u32, u32)>>;

/// A reference workload, and what was fitted to its first half.
#[derive(Debug)]
pub struct Figure14 {
    keys: u32,
    operations: u64,
    seed: u64,
    first_half: Analysis,
    model: Model,
    live: Live,
}

/// Events, one after the other, without an end.
pub trait Events {
    /// The next one; its bytes are lent until the one after it.
    fn next(&mut self) -> Event<'_>;
}

impl Events for Generator {
    fn next(&mut self) -> Event<'_> {
        self.draw()
    }
}

impl Figure14 {
    /// Makes twice as many operations as are measured, and fits to the first half of them.
    ///
    /// # Errors
    /// For numbers of which no workload can be made.
    pub fn new(keys: u32, operations: u64, seed: u64) -> Result<Figure14, ModelError> {
        if keys < 1000 || operations < 1000 {
            return Err(ModelError("fewer than a thousand keys or operations say nothing".to_owned()));
        }
        let header = Header {
            start_unix_ns: 0,
            sampled_one_in: 1,
            keys: TracedKeys::Clear,
            has_values: false,
            is_of_blocks: false,
            origin: "the reference workload of figure 14".to_owned(),
        };
        let mut analyser = Analyser::new(header, Bounds::default());
        let mut reference = Reference::new(keys, seed);
        (0..operations).for_each(|_| analyser.add(&reference.next()));
        let first_half = analyser.finish();
        let live: Live = Arc::new(reference.live().collect());
        let keyspace = first_half.keyspaces.first();
        let keyspace = keyspace.ok_or_else(|| ModelError("no events were made".to_owned()))?;
        let (mut there, mut key) = (KeysThere::new(), Vec::new());
        for (number, _) in live.iter() {
            reference::key(*number, &mut key);
            there.add(keyspace, &key);
        }
        let model = fit_among(&first_half, &[there]);
        Ok(Figure14 { keys, operations, seed, first_half, model, live })
    }

    /// Operations that are measured.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Bytes of all keys and values that are there at first.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let mut key = Vec::new();
        let of = |(number, value): &(u32, u32)| {
            reference::key(*number, &mut key);
            key.len() as u64 + u64::from(*value)
        };
        self.live.iter().map(of).sum()
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What was seen of the first half.
    #[must_use]
    pub fn first_half(&self) -> &Analysis {
        &self.first_half
    }

    /// Each key that is there at first, as a put.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn load<E>(&self, mut each: impl FnMut(&Event<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut key = Vec::new();
        for (number, value_bytes) in self.live.iter() {
            reference::key(*number, &mut key);
            each(&Event { value_bytes: *value_bytes, ..Event::new(0, Asked::Put, 0, &key) })?;
        }
        Ok(())
    }

    /// The names of all workloads: the replay, the eight baselines, the model.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(REPLAY).chain(Kind::ALL.into_iter().map(Kind::name)).chain(std::iter::once(MODEL))
    }

    /// The events of a workload; of another seed for another run, but for the replay.
    ///
    /// # Errors
    /// For a name that none has, and what cannot be fitted.
    pub fn events(&self, name: &str, run: u64) -> Result<Box<dyn Events>, ModelError> {
        if name == REPLAY {
            let mut reference = Reference::new(self.keys, self.seed);
            for _ in 0..self.operations {
                reference.next();
            }
            return Ok(Box::new(reference));
        }
        if name == MODEL {
            let mut generator = Generator::new(&self.model, run)?;
            let (live, keys) = (Arc::clone(&self.live), generator.keys(0));
            generator.name_keys(Arc::new(move |_, number, key| {
                // As many keys as the model counts, but for what it rounds.
                let at = u128::from(number) * live.len() as u128 / u128::from(keys.max(1));
                let at = usize::try_from(at).unwrap_or(0).min(live.len() - 1);
                reference::key(live[at].0, key);
            }));
            return Ok(Box::new(generator));
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| ModelError(format!("there is no workload {name:?}")))?;
        Ok(Box::new(Baseline::new(kind, &self.first_half, &self.model, Arc::clone(&self.live), run)?))
    }
}

#[cfg(test)]
mod tests;
