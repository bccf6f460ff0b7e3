//! Reading in every way that the engine offers, and comparing: the ways with each other, and what
//! they say with the oracle.

use std::collections::BTreeMap;
use std::ops::Bound;

use tombolo::{Error, Keyspace, Op, Scan, Snapshot, Value};

use super::{Client, Stop, Taken};
use crate::failure::Violation;
use crate::oracle::{Content, State, show};

/// The source of a read: the newest state, or a snapshot.
#[derive(Clone, Copy)]
enum Source<'a> {
    Newest,
    Snapshot(&'a Snapshot),
}

impl Source<'_> {
    fn get(self, keyspace: &Keyspace, key: &[u8]) -> Op<Option<Value>> {
        match self {
            Source::Newest => keyspace.get(key),
            Source::Snapshot(snapshot) => snapshot.get(keyspace, key),
        }
    }

    fn get_with(self, keyspace: &Keyspace, key: &[u8]) -> Op<Option<Vec<u8>>> {
        match self {
            Source::Newest => keyspace.get_with(key, <[u8]>::to_vec),
            Source::Snapshot(snapshot) => snapshot.get_with(keyspace, key, <[u8]>::to_vec),
        }
    }

    fn multi_get(self, keyspace: &Keyspace, keys: &[Vec<u8>]) -> Op<Vec<Option<Value>>> {
        match self {
            Source::Newest => keyspace.multi_get(keys),
            Source::Snapshot(snapshot) => snapshot.multi_get(keyspace, keys),
        }
    }

    fn scan(self, keyspace: &Keyspace, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Scan {
        match self {
            Source::Newest => keyspace.scan(range),
            Source::Snapshot(snapshot) => snapshot.scan(keyspace, range),
        }
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that are looked for beside those that are there: before, between and after them.
const PROBES: [&[u8]; 5] = [b"\0", b"key-", b"key-05\0", b"key-99", b"\xFF\xFF"];

fn disagree<T>(place: &str, what: impl std::fmt::Display) -> Result<T, Stop> {
    Err(Stop::Violation(Violation::new(format!("ways to read disagree in keyspace {place}: {what}"))))
}

impl Client {
    /// Reads everything in every way from the newest state. Nothing else may write in this session
    /// meanwhile.
    ///
    /// # Errors
    /// A violation when two ways disagree; the errors of reading.
    pub(super) async fn read_everything(&self) -> Result<Content, Stop> {
        let snapshot = self.db.snapshot();
        let newest = self.read_source(Source::Newest, &self.keyspaces).await?;
        let at_snapshot = self.read_source(Source::Snapshot(&snapshot), &self.keyspaces).await?;
        let (count, lines) = State::new(newest.clone()).differences(&State::new(at_snapshot), 4);
        if count > 0 {
            return Err(Stop::Violation(Violation::new(format!(
                "a fresh snapshot and the newest state differ: {}",
                lines.join("; ")
            ))));
        }
        Ok(newest)
    }

    async fn read_source(
        &self,
        source: Source<'_>,
        keyspaces: &BTreeMap<String, Keyspace>,
    ) -> Result<Content, Stop> {
        let mut content = Content::new();
        for (name, keyspace) in keyspaces {
            let entries = self.read_keyspace(source, name, keyspace).await?;
            content.insert(name.clone(), entries);
        }
        Ok(content)
    }

    async fn read_keyspace(
        &self,
        source: Source<'_>,
        name: &str,
        keyspace: &Keyspace,
    ) -> Result<Entries, Stop> {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let forward = self.forward(&mut source.scan(keyspace, everything.clone()), name).await?;
        let backward = self.backward(&mut source.scan(keyspace, everything), name).await?;
        if forward != backward {
            return disagree(name, format!("{} entries forward, {} backward", forward.len(), backward.len()));
        }
        let mut keys: Vec<Vec<u8>> = forward.keys().cloned().collect();
        keys.extend(PROBES.iter().map(|probe| probe.to_vec()));
        for key in &keys {
            let got = self.read(source.get(keyspace, key).await)?;
            let got_with = self.read(source.get_with(keyspace, key).await)?;
            let scanned = forward.get(key).map(Vec::as_slice);
            if got.as_deref() != scanned || got_with.as_deref() != scanned {
                let words = format!(
                    "{}: get gives {:?}, get_with {:?}, scan {:?}",
                    show(key),
                    got.as_deref().map(show),
                    got_with.as_deref().map(show),
                    scanned.map(show)
                );
                return disagree(name, words);
            }
        }
        let several = self.read(source.multi_get(keyspace, &keys).await)?;
        for (key, got) in keys.iter().zip(&several) {
            if got.as_deref() != forward.get(key).map(Vec::as_slice) {
                return disagree(
                    name,
                    format!("{}: multi_get gives {:?}", show(key), got.as_deref().map(show)),
                );
            }
        }
        if several.len() != keys.len() {
            return disagree(
                name,
                format!("multi_get of {} keys gives {} answers", keys.len(), several.len()),
            );
        }
        Ok(forward)
    }

    /// An answer of the engine, unless the process has ended.
    fn read<T>(&self, result: Result<T, Error>) -> Result<T, Stop> {
        self.alive()?;
        result.map_err(|error| {
            self.oracle.lock().report.errors += 1;
            Stop::Error(error)
        })
    }

    async fn forward(&self, scan: &mut Scan, name: &str) -> Result<Entries, Stop> {
        let mut entries = Entries::new();
        while let Some((key, value)) = self.read(scan.next_async().await)? {
            if entries.last_key_value().is_some_and(|(last, _)| last.as_slice() >= &*key) {
                return disagree(name, format!("a scan gives {} after a greater or equal key", show(&key)));
            }
            entries.insert(key.to_vec(), value.to_vec());
        }
        Ok(entries)
    }

    async fn backward(&self, scan: &mut Scan, name: &str) -> Result<Entries, Stop> {
        let mut entries = Entries::new();
        scan.seek_to_last();
        while let Some((key, value)) = self.read(scan.prev_async().await)? {
            if entries.first_key_value().is_some_and(|(first, _)| first.as_slice() <= &*key) {
                return disagree(
                    name,
                    format!("a scan backward gives {} after a smaller or equal key", show(&key)),
                );
            }
            entries.insert(key.to_vec(), value.to_vec());
        }
        Ok(entries)
    }

    /// Reads everything and compares it with the oracle.
    ///
    /// # Errors
    /// A violation; the errors of reading.
    pub async fn check_all(&mut self) -> Result<(), Stop> {
        self.settle().await?;
        let from = self.oracle.lock().read_begins(self.id)?;
        let found = State::new(self.read_everything().await?);
        let mut oracle = self.oracle.lock();
        oracle.report.verified += 1;
        let mut view = oracle.view(self.id, from)?;
        let words = |expected: &State| {
            let (count, lines) = expected.differences(&found, 8);
            format!("{count} differences from the newest state: {}", lines.join("; "))
        };
        Ok(oracle.narrow(&mut view, words, |state| state.fingerprint() == found.fingerprint())?)
    }

    /// Reads one key in each way.
    ///
    /// # Errors
    /// A violation; the errors of reading.
    pub async fn check_get(&mut self, name: &str, key: &[u8]) -> Result<(), Stop> {
        let Some(keyspace) = self.keyspaces.get(name).cloned() else { return Ok(()) };
        for way in ["get", "get_with", "multi_get", "get_confirmed"] {
            let (from, superseded) = {
                let mut oracle = self.oracle.lock();
                (oracle.read_begins(self.id)?, oracle.is_superseded(self.id))
            };
            let got = match way {
                "get" => keyspace.get(key).await.map(|value| value.map(|value| value.to_vec())),
                "get_with" => keyspace.get_with(key, <[u8]>::to_vec).await,
                "multi_get" => keyspace
                    .multi_get(&[key])
                    .await
                    .map(|values| values.into_iter().next().flatten().map(|value| value.to_vec())),
                _ => keyspace.get_confirmed(key).await.map(|value| value.map(|value| value.to_vec())),
            };
            self.alive()?;
            let got = match got {
                Ok(got) => got,
                Err(error) => {
                    self.judge(error)?;
                    continue;
                }
            };
            let mut oracle = self.oracle.lock();
            if way == "get_confirmed" {
                oracle.confirmed(self.id, superseded)?;
            }
            let mut view = oracle.view(self.id, from)?;
            let words = |expected: &State| {
                let expected = expected.get(name, key).map(show);
                format!(
                    "{way} of {name}/{} gives {:?}, expected at the end {expected:?}",
                    show(key),
                    got.as_deref().map(show)
                )
            };
            oracle.narrow(&mut view, words, |state| state.get(name, key) == got.as_deref())?;
        }
        Ok(())
    }

    /// Scans a range forward and backward.
    ///
    /// # Errors
    /// A violation; the errors of reading.
    pub async fn check_scan(&mut self, name: &str, from_key: &[u8], to_key: &[u8]) -> Result<(), Stop> {
        let Some(keyspace) = self.keyspaces.get(name).cloned() else { return Ok(()) };
        let (low, high) = if from_key <= to_key { (from_key, to_key) } else { (to_key, from_key) };
        for forward in [true, false] {
            let from = self.oracle.lock().read_begins(self.id)?;
            let mut scan = Source::Newest
                .scan(&keyspace, (Bound::Included(low.to_vec()), Bound::Excluded(high.to_vec())));
            // The moment is that of the call.
            let mut view = self.oracle.lock().view(self.id, from)?;
            let found = if forward {
                self.forward(&mut scan, name).await
            } else {
                self.backward(&mut scan, name).await
            };
            let found = match found {
                Err(Stop::Error(error)) => {
                    self.judge(error)?;
                    continue;
                }
                found => found?,
            };
            let expected = |state: &State| -> Entries {
                let range =
                    state.content().get(name).map(|entries| entries.range(low.to_vec()..high.to_vec()));
                range.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let words = |state: &State| {
                let (got, expected) = (found.keys().map(|key| show(key)), expected(state));
                format!(
                    "a scan of {name} gives {:?}, expected at the end {:?}",
                    got.collect::<Vec<_>>(),
                    expected.keys().map(|key| show(key)).collect::<Vec<_>>()
                )
            };
            self.oracle.lock().narrow(&mut view, words, |state| expected(state) == found)?;
        }
        Ok(())
    }

    /// Takes a snapshot.
    ///
    /// # Errors
    /// Without a session: a mistake of the scenario.
    pub fn take_snapshot(&mut self) -> Result<(), Stop> {
        let from = self.oracle.lock().read_begins(self.id)?;
        let snapshot = self.db.snapshot();
        let view = self.oracle.lock().view(self.id, from)?;
        self.snapshots.push(Taken { snapshot, view, keyspaces: self.keyspaces.clone() });
        Ok(())
    }

    /// Drops the oldest snapshot.
    pub fn drop_snapshot(&mut self) {
        if !self.snapshots.is_empty() {
            self.snapshots.remove(0);
        }
    }

    /// Reads all snapshots whole: each shows what it showed before.
    ///
    /// # Errors
    /// A violation; the errors of reading.
    pub async fn check_snapshots(&mut self) -> Result<(), Stop> {
        let mut snapshots = std::mem::take(&mut self.snapshots);
        for taken in &mut snapshots {
            let content = match self.read_source(Source::Snapshot(&taken.snapshot), &taken.keyspaces).await {
                Err(Stop::Error(error)) => {
                    self.judge(error)?;
                    continue;
                }
                content => content?,
            };
            let agrees = |state: &State| {
                content.iter().all(|(name, entries)| state.content().get(name) == Some(entries))
            };
            let words = |state: &State| {
                let (count, lines) = state.differences(&State::new(content.clone()), 8);
                format!("a snapshot has {count} differences from the state at its end: {}", lines.join("; "))
            };
            self.oracle.lock().narrow(&mut taken.view, words, agrees)?;
        }
        self.snapshots = snapshots;
        self.oracle.lock().report.verified += 1;
        Ok(())
    }
}
