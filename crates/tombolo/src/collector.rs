//! Collectors: what a program wants to know of each table, found while the table is written.
//!
//! A database is opened with collectors by name ([`crate::Builder::collector`]). Each is shown the
//! entries of every table that a flush or a compaction writes, and says properties of it, which
//! stay with the table: [`crate::Keyspace::table_properties`].
//!
//! Invariant: a collector that panics or says too much costs its own properties of that table, and
//! nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tombolo_format::collected::{COLLECTED_NAME_BYTES_MAX, Collected, PROPERTY_COLLECTED, encode_collected};
use tombolo_format::key::{EntryKind, InternalKey};
use tombolo_storage::{Error, ErrorKind, Result};

/// Most collectors of a database.
const COLLECTORS_MAX: usize = 16;

/// Begins with each table anew. Several tables are written at once.
pub trait Collector: Send + Sync + 'static {
    /// A table of this keyspace begins, for this level.
    fn begin(&self, keyspace: u32, level: u8) -> Box<dyn TableCollector>;
}

/// Is shown the entries of one table, in the order of its keys; of a key newest first.
pub trait TableCollector: Send {
    /// The next entry. Keep it short: every entry that is written passes here.
    fn add(&mut self, key: &[u8], entry: TableEntry<'_>);

    /// Names and values of the properties of the table, in any order.
    fn finish(self: Box<Self>) -> Vec<(String, Vec<u8>)>;
}

/// What a table holds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableEntry<'a> {
    /// A value.
    Put(&'a [u8]),
    /// A delete.
    Delete,
    /// Anything else: a value that expires or lies apart, a merge operand.
    Other,
}

/// The collectors of a database, by name.
#[derive(Clone, Default)]
pub(crate) struct Collectors(BTreeMap<Arc<str>, Known>);

#[derive(Clone)]
struct Known {
    collector: Arc<dyn Collector>,
    /// Its trouble was told.
    is_told: Arc<AtomicBool>,
}

impl fmt::Debug for Collectors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Collectors {
    /// Adds one, in the place of one of its name.
    pub(crate) fn add(&mut self, name: &str, collector: Arc<dyn Collector>) {
        self.0.insert(name.into(), Known { collector, is_told: Arc::default() });
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// # Errors
    /// `Invalid` for more of them, or longer names, than may be.
    pub(crate) fn check(&self) -> Result<()> {
        let longest = self.0.keys().map(|name| name.len()).max().unwrap_or(0);
        if self.0.len() <= COLLECTORS_MAX && longest <= COLLECTED_NAME_BYTES_MAX {
            return Ok(());
        }
        let found = format!("{} collectors, with names of up to {longest} bytes", self.0.len());
        Err(Error::new(ErrorKind::Invalid, found)
            .expected(format!("at most {COLLECTORS_MAX}, of {COLLECTED_NAME_BYTES_MAX} bytes")))
    }

    /// Begins with a table; `None` when nobody wants to see it.
    pub(crate) fn begin(&self, keyspace: u32, level: u8) -> Option<Collecting> {
        let begin = |(name, known): (&Arc<str>, &Known)| {
            let one = guarded(name, known, || known.collector.begin(keyspace, level))?;
            Some((Arc::clone(name), known.clone(), one))
        };
        let all: Vec<_> = self.0.iter().filter_map(begin).collect();
        (!all.is_empty()).then_some(Collecting(all))
    }
}

/// Calls foreign code. What it panics with costs its own properties, and is told once.
fn guarded<T>(name: &str, known: &Known, call: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(call)).ok();
    if result.is_none() {
        tell(name, known, "panicked");
    }
    result
}

fn tell(name: &str, known: &Known, what: &str) {
    if !known.is_told.swap(true, Ordering::Relaxed) {
        tracing::error!(collector = %name, "a collector {what}: such tables are without its properties");
    }
}

/// The collectors at one table. One that failed is there no more.
pub(crate) struct Collecting(Vec<(Arc<str>, Known, Box<dyn TableCollector>)>);

impl fmt::Debug for Collecting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.iter().map(|(name, ..)| name)).finish()
    }
}

impl Collecting {
    /// Shows them the next entry.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let entry = match key.trailer.kind() {
            Some(EntryKind::Put) => TableEntry::Put(value),
            Some(EntryKind::Delete | EntryKind::SingleDelete) => TableEntry::Delete,
            _ => TableEntry::Other,
        };
        self.0
            .retain_mut(|(name, known, one)| guarded(name, known, || one.add(key.user_key, entry)).is_some());
    }

    /// The value of property [`PROPERTY_COLLECTED`]; `None` when nothing was said.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        let mut said: BTreeMap<(Arc<str>, String), Vec<u8>> = BTreeMap::new();
        for (collector, known, one) in self.0 {
            let Some(properties) = guarded(&collector, &known, || one.finish()) else { continue };
            let mut with = said.clone();
            let named = properties.into_iter().map(|(name, value)| ((Arc::clone(&collector), name), value));
            with.extend(named);
            match encoded(&with) {
                Some(_) => said = with,
                None => tell(&collector, &known, "said more than a table has room for"),
            }
        }
        if said.is_empty() { None } else { encoded(&said) }
    }
}

fn encoded(said: &BTreeMap<(Arc<str>, String), Vec<u8>>) -> Option<Vec<u8>> {
    let all: Vec<_> =
        said.iter().map(|((collector, name), value)| Collected { collector, name, value }).collect();
    encode_collected(&all).ok()
}

/// The id of the property that [`Collecting::finish`] gives the value of.
pub(crate) const PROPERTY: u16 = PROPERTY_COLLECTED;

#[cfg(test)]
mod tests;
