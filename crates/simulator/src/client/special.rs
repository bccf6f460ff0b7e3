//! Writes that ask of their key, and tables from outside.

use std::collections::BTreeSet;

use tombolo::{
    Condition, Durability, Error, ErrorKind, Ingest, IngestOptions, Keyspace, Registry, TableFileBuilder,
};
use tombolo_storage::Uri;

use super::step::{Asks, Entry, Takes};
use super::{Change, Client, Stop};
use crate::failure::Violation;
use crate::oracle::show;

impl Client {
    /// Puts a value if its key is as it asks. It finds one that a read may find, and the answer
    /// follows from it.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub(super) async fn put_if(
        &mut self,
        name: &str,
        key: &[u8],
        length: usize,
        asks: Asks,
    ) -> Result<(), Stop> {
        self.settle().await?;
        let Some(keyspace) = self.keyspaces.get(name).cloned() else { return Ok(()) };
        let read = keyspace.get_versioned(key).await;
        self.alive()?;
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.judge(error),
        };
        let condition = match asks {
            Asks::Absent => Condition::Absent,
            Asks::Present => Condition::Present,
            Asks::Unchanged => Condition::unchanged(read.as_ref()),
            Asks::Other => Condition::equal(b"no value is this one"),
        };
        let changes = self.changes(&[Entry::Put(name.to_owned(), key.to_vec(), length)])?;
        let [Change::Put(_, _, value)] = &changes[..] else { return Ok(()) };
        let value = value.clone();
        let (write, mut view) = {
            let mut oracle = self.oracle.lock();
            let from = oracle.read_begins(self.id)?;
            let view = oracle.view(self.id, from)?;
            (oracle.begin(self.id, changes, Durability::Durable)?, view)
        };
        let decision = keyspace.put_if(key, value, condition).await;
        self.alive()?;
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                self.oracle.lock().end(write, Err(error.kind()))?;
                return self.judge(error);
            }
        };
        let found = decision.found.first().cloned().flatten();
        let holds = match asks {
            Asks::Absent => found.is_none(),
            Asks::Present => found.is_some(),
            Asks::Unchanged => {
                let number = |version: &Option<tombolo::Versioned>| version.as_ref().map(|one| one.sequence);
                number(&found) == number(&read)
            }
            Asks::Other => false,
        };
        if decision.is_met() != holds {
            let found = found.as_ref().map(|found| show(&found.value));
            return Err(Stop::Violation(Violation::new(format!(
                "a put of {name}/{} if {asks:?} answers {} and has found {found:?}",
                show(key),
                decision.is_met()
            ))));
        }
        let mut oracle = self.oracle.lock();
        let found = found.as_ref().map(|found| &found.value[..]);
        let words = |_: &_| format!("a put of {name}/{} if {asks:?} finds {:?}", show(key), found.map(show));
        oracle.narrow(&mut view, words, |state| state.get(name, key) == found)?;
        // What does not hold has no effect.
        Ok(oracle.end(write, if holds { Ok(()) } else { Err(ErrorKind::Conflict) })?)
    }

    /// Takes in a table from outside, which all reads see at once, or none.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub(super) async fn ingest(
        &mut self,
        name: &str,
        keys: &BTreeSet<Vec<u8>>,
        length: usize,
        takes: Takes,
    ) -> Result<(), Stop> {
        self.settle().await?;
        let Some(keyspace) = self.keyspaces.get(name).cloned() else { return Ok(()) };
        let keeps_level = keyspace.options().ingest_behind;
        // Beside snapshots the one takes long, and the other is refused.
        let takes = match takes {
            Takes::Behind if keeps_level && self.snapshots.is_empty() => Takes::Behind,
            Takes::Exchange if !keeps_level && self.snapshots.is_empty() => Takes::Exchange,
            _ => Takes::Over,
        };
        let place = self.oracle.lock().mark(self.id)?;
        // Nothing else writes these, and no two tables meet.
        let key_of = |key: &Vec<u8>| match takes {
            Takes::Behind => [format!("behind-{}-{place}-", self.id.0).as_bytes(), key].concat(),
            _ => key.clone(),
        };
        let puts: Vec<_> = keys.iter().map(|key| Entry::Put(name.to_owned(), key_of(key), length)).collect();
        let mut changes = self.changes(&puts)?;
        let table = self.table(&keyspace, &changes).await.map_err(Stop::Error)?;
        self.alive()?;
        let mut ingest = Ingest::new().table(&keyspace, table);
        match takes {
            Takes::Over => {}
            Takes::Exchange => {
                ingest = ingest.exchange(&keyspace);
                let all = Change::DeleteRange(name.to_owned(), Vec::new(), vec![0xFF; 8]);
                changes.insert(0, all);
            }
            Takes::Behind => {
                ingest = ingest.options(IngestOptions { behind: true, ..IngestOptions::default() });
            }
        }
        let write = self.oracle.lock().begin(self.id, changes, Durability::Durable)?;
        let result = self.db.ingest(ingest).await;
        self.alive()?;
        self.oracle.lock().end(write, result.as_ref().map(drop).map_err(Error::kind))?;
        result.map(drop).or_else(|error| self.judge(error))
    }

    /// A table with all that these put, in memory of its own.
    async fn table(&self, keyspace: &Keyspace, changes: &[Change]) -> Result<tombolo::TablePlace, Error> {
        let env = self.process.env();
        let registry = Registry::with_defaults();
        let store = registry.open_object_store(&env, &Uri::parse("mem://outside")?)?;
        let place = tombolo::TablePlace::object(store, format!("{:016x}.table", env.random_u64()))?;
        let made = TableFileBuilder::create_with(env, registry, place.clone(), keyspace.options());
        let mut table = made.await?;
        for change in changes {
            if let Change::Put(_, key, value) = change {
                table.put(key, value).await?;
            }
        }
        table.finish().await?;
        Ok(place)
    }
}
