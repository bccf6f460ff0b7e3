//! What an ordered map answers, by the rules of values that end and of tables that lie behind.
//!
//! Time goes in steps ([`Action::Pass`]). What ends does so in the middle between two of them, so
//! that an answer does not depend on the time that operations take.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Action, Answer, Asks, Brings, Does, Table, WALK_ENTRIES, Way, Write, value};
use super::operator;

/// An entry of a key: what counts of it, oldest first, are a put, if any, and the merges after it.
#[derive(Clone, Debug)]
enum Entry {
    /// A value, and the last step in which it is there.
    Put(Vec<u8>, Option<u64>),
    /// An operand; the steps in which it was written and in which it is there for the last time.
    Merge(Vec<u8>, Option<(u64, u64)>),
}

/// What a key has in a step: an operand that ends lies over what had not ended when it was written,
/// another one over what has not ended now.
fn value_of(entries: &[Entry], step: u64, chains: bool) -> Option<Vec<u8>> {
    let (newest, older) = entries.split_last()?;
    match newest {
        Entry::Put(value, last) => last.is_none_or(|last| step <= last).then(|| value.clone()),
        Entry::Merge(operand, times) => {
            let base = match times {
                Some((_, last)) if *last < step => return None,
                Some((written, _)) => value_of(older, *written, chains),
                None => value_of(older, step, chains),
            };
            let base = base.unwrap_or_default();
            Some(if chains { operator::chain(&base, operand) } else { [&base[..], operand].concat() })
        }
    }
}

/// A keyspace.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    entries: BTreeMap<Vec<u8>, Vec<Entry>>,
    /// Which operator it has: that of [`operator::chain`], or appending.
    chains: bool,
    /// Keys that were written, and ranges that were deleted: nothing shows behind them.
    touched: BTreeSet<Vec<u8>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys that were merged into: what comes behind may show under their operands.
    merged: BTreeSet<Vec<u8>>,
    /// The first keys of tables that were ingested behind.
    behind: BTreeSet<Vec<u8>>,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

impl Keys {
    /// What reads show in a step.
    pub(super) fn shown(&self, step: u64) -> Map {
        let all = self.entries.iter();
        all.filter_map(|(key, entries)| Some((key.clone(), value_of(entries, step, self.chains)?))).collect()
    }

    fn get(&self, key: &[u8], step: u64) -> Option<Vec<u8>> {
        self.entries.get(key).and_then(|entries| value_of(entries, step, self.chains))
    }

    fn holds(&self, key: &[u8], asks: Asks, step: u64) -> bool {
        let is_there = self.get(key, step).is_some();
        match asks {
            Asks::Absent => !is_there,
            Asks::Present => is_there,
            Asks::Equal { right } => is_there && right,
            Asks::Unchanged { right } => right,
        }
    }

    /// Takes in a table.
    fn bring(&mut self, table: &Table, value: &[u8], step: u64) {
        for (key, brings) in table {
            match brings {
                Brings::Put => self.put(key, value.to_vec(), None),
                Brings::PutUntil(steps) => self.put(key, value.to_vec(), Some(step + steps)),
                Brings::Merge => self.merge(key, value.to_vec(), None),
                Brings::Delete => self.delete(key),
            }
        }
    }

    fn merge(&mut self, key: &[u8], operand: Vec<u8>, times: Option<(u64, u64)>) {
        self.touched.insert(key.to_vec());
        self.merged.insert(key.to_vec());
        self.entries.entry(key.to_vec()).or_default().push(Entry::Merge(operand, times));
    }

    fn delete(&mut self, key: &[u8]) {
        self.touched.insert(key.to_vec());
        self.entries.remove(key);
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, last: Option<u64>) {
        self.touched.insert(key.to_vec());
        self.entries.insert(key.to_vec(), vec![Entry::Put(value, last)]);
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.ranges.push((from.to_vec(), to.to_vec()));
        self.entries.retain(|key, _| &key[..] < from || &key[..] >= to);
    }

    fn is_untouched(&self, key: &[u8]) -> bool {
        let deleted = |(from, to): &(Vec<u8>, Vec<u8>)| from[..] <= *key && *key < to[..];
        !self.touched.contains(key) && !self.ranges.iter().any(deleted)
    }

    fn write(&mut self, write: &Write, number: usize, step: u64) {
        let Write { key, does, .. } = write;
        match does {
            Does::Put(bytes) => self.put(key, value(number, *bytes), None),
            Does::PutUntil(bytes, steps) => self.put(key, value(number, *bytes), Some(step + steps)),
            Does::Merge(bytes) | Does::MergeUntil(bytes, _) => {
                let times = match does {
                    Does::MergeUntil(_, steps) => Some((step, step + steps)),
                    _ => None,
                };
                self.merge(key, value(number, *bytes), times);
            }
            Does::Delete | Does::SingleDelete => self.delete(key),
            Does::DeleteRange(to) => self.delete_range(key, to),
        }
    }
}

/// What a table that comes behind may hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Behind {
    /// Keys that show, and keys for which the keyspace has something.
    pub(super) shows: Vec<Vec<u8>>,
    pub(super) hidden: Vec<Vec<u8>>,
}

type Content = BTreeMap<String, Keys>;

/// What the database must hold.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) content: Content,
    /// With the steps in which they were taken.
    pub(super) snapshots: Vec<(Content, u64)>,
    pub(super) step: u64,
    /// Of the last [`Action::Behind`].
    pub(super) last_behind: Behind,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            content: BTreeMap::from([("default".to_owned(), Keys::default())]),
            snapshots: Vec::new(),
            step: 0,
            last_behind: Behind::default(),
        }
    }
}

impl Model {
    fn write(&mut self, writes: &[Write], number: usize) {
        for write in writes {
            if let Some(keys) = self.content.get_mut(&write.keyspace) {
                keys.write(write, number, self.step);
            }
        }
    }

    /// Does operation `number`, and says what it answers.
    pub(super) fn apply(&mut self, action: &Action, number: usize) -> Answer {
        match action {
            Action::Write(writes, ..) => self.write(writes, number),
            Action::Transact(writes, way, _) => return self.transact(writes, *way, number),
            Action::PutIf(keyspace, key, _, asks) | Action::DeleteIf(keyspace, key, asks) => {
                let Some(keys) = self.content.get_mut(keyspace) else { return Answer::None };
                let is_met = keys.holds(key, *asks, self.step);
                match action {
                    _ if !is_met => {}
                    Action::PutIf(_, _, bytes, _) => keys.put(key, value(number, *bytes), None),
                    _ => keys.delete(key),
                }
                return Answer::Met(is_met);
            }
            Action::Require(asked, writes) => {
                let known = |(keyspace, key, asks): &(String, Vec<u8>, Asks)| {
                    self.content.get(keyspace).map(|keys| keys.holds(key, *asks, self.step))
                };
                let is_met = asked.iter().filter_map(known).all(|holds| holds);
                if is_met {
                    self.write(writes, number);
                }
                return Answer::Met(is_met);
            }
            Action::DeleteFiles(keyspace, from, to) | Action::Filter(keyspace, from, to) => {
                let Some(keys) = self.content.get_mut(keyspace) else { return Answer::None };
                keys.delete_range(from, to);
            }
            Action::Ingest(tables, bytes, _) => {
                for (keyspace, table) in tables {
                    if let Some(keys) = self.content.get_mut(keyspace) {
                        keys.bring(table, &value(number, *bytes), self.step);
                    }
                }
            }
            Action::Exchange(keyspace, table, bytes) => {
                let Some(keys) = self.content.get_mut(keyspace) else { return Answer::None };
                keys.delete_range(b"", b"\xff");
                keys.bring(table, &value(number, *bytes), self.step);
            }
            Action::Behind(keyspace, of, bytes) => return self.behind(keyspace, of, &value(number, *bytes)),
            Action::Export(keyspace) => return Answer::or_none(self.content.contains_key(keyspace)),
            Action::Create(name) => {
                let keys = || Keys { chains: operator::chains(name), ..Keys::default() };
                self.content.entry(name.clone()).or_insert_with(keys);
            }
            Action::Drop(name) => {
                self.content.remove(name);
                self.snapshots.iter_mut().for_each(|(content, _)| drop(content.remove(name)));
            }
            Action::Pass => self.step += 1,
            Action::Flush | Action::Compact | Action::Crash(_) | Action::Beside(_) => {}
            Action::Snapshot => self.snapshots.push((self.content.clone(), self.step)),
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(0);
                }
            }
            Action::Reopen => self.snapshots.clear(),
            Action::TakeOver => {
                self.snapshots.clear();
                return Answer::Fenced(true);
            }
            Action::ReadSnapshot(keyspace, nth) => return self.read_snapshot(keyspace, *nth),
            read => return self.read(read),
        }
        Answer::Done
    }

    /// Keys of a keyspace that were merged into at some time.
    pub(super) fn merged(&self, keyspace: &str) -> BTreeSet<Vec<u8>> {
        self.content.get(keyspace).map(|keys| keys.merged.clone()).unwrap_or_default()
    }

    /// Reads the first key within the transaction, after its writes.
    fn transact(&mut self, writes: &[Write], way: Way, number: usize) -> Answer {
        let mut inside = self.clone();
        inside.write(writes, number);
        let read = writes.iter().find_map(|write| {
            let keys = inside.content.get(&write.keyspace)?;
            Some(keys.get(&write.key, self.step))
        });
        let Some(read) = read else { return Answer::None };
        if way.commits() {
            self.content = inside.content;
        }
        if matches!(way, Way::PrepareReopen { .. }) {
            self.snapshots.clear();
        }
        Answer::Value(read)
    }

    /// A table behind shows where nothing was; each place is taken once.
    fn behind(&mut self, keyspace: &str, of: &[Vec<u8>], value: &[u8]) -> Answer {
        self.last_behind = Behind::default();
        let Some(keys) = self.content.get_mut(keyspace) else { return Answer::None };
        let Some(first) = of.first() else { return Answer::Done };
        if !keys.behind.insert(first.clone()) {
            return Answer::Done;
        }
        for key in of {
            if keys.merged.contains(key) {
                continue;
            }
            if keys.is_untouched(key) {
                keys.put(key, value.to_vec(), None);
                self.last_behind.shows.push(key.clone());
            } else {
                self.last_behind.hidden.push(key.clone());
            }
        }
        Answer::Done
    }

    fn read_snapshot(&self, keyspace: &str, nth: usize) -> Answer {
        match (self.content.contains_key(keyspace), self.snapshots.get(nth)) {
            (true, Some((content, step))) => {
                // One that was created after the snapshot holds nothing at it.
                let shown = content.get(keyspace).map(|keys| keys.shown(*step)).unwrap_or_default();
                Answer::entries(shown.iter(), nth.is_multiple_of(2))
            }
            _ => Answer::None,
        }
    }

    fn read(&self, action: &Action) -> Answer {
        let (Action::Get(keyspace, _)
        | Action::MultiGet(keyspace, _)
        | Action::Scan(keyspace, ..)
        | Action::Prefix(keyspace, ..)
        | Action::Walk(keyspace, _)) = action
        else {
            return Answer::Done;
        };
        let Some(keys) = self.content.get(keyspace) else { return Answer::None };
        let map = keys.shown(self.step);
        match action {
            Action::Get(_, key) => Answer::Value(map.get(key).cloned()),
            Action::MultiGet(_, keys) => {
                Answer::Values(keys.iter().map(|key| map.get(key).cloned()).collect())
            }
            Action::Scan(_, from, to, _) if from >= to => Answer::Entries(Vec::new()),
            Action::Scan(_, from, to, forward) => {
                Answer::entries(map.range(from.clone()..to.clone()), *forward)
            }
            Action::Prefix(_, prefix, forward) => {
                Answer::entries(map.iter().filter(|(key, _)| key.starts_with(prefix)), *forward)
            }
            Action::Walk(_, key) => {
                let on = map.range(key.clone()..).take(WALK_ENTRIES);
                let back = map.range(..=key.clone()).rev().take(WALK_ENTRIES);
                Answer::Entries(on.chain(back).map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => Answer::Done,
        }
    }
}
