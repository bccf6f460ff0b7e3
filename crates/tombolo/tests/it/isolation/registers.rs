//! Judges histories of transactions that read and write registers. Each value is written once, so
//! that a read says who wrote what it saw.
//!
//! Values do not say in which order they were written, as lists do. Commits do: each has a number,
//! and of two commits the later one has the greater. That is taken at its word, and then tested: an
//! order that is not the true one shows as a transaction that comes before itself. A write whose
//! outcome nobody was told has no number. It counts where it was seen.

use std::collections::BTreeMap;

use super::checker::{Edges, End, Level, Lived, add, judge};

/// One step of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Write(u8, u32),
    /// What was found, which may be an own value.
    Read(u8, Option<u32>),
}

/// A transaction, with moments at which it began and ended.
#[derive(Clone, Debug)]
pub struct Done {
    pub steps: Vec<Step>,
    pub end: End,
    /// Of its commit, where that was told.
    pub number: Option<u64>,
    pub began: u64,
    pub ended: u64,
}

impl Lived for Done {
    fn began(&self) -> u64 {
        self.began
    }

    fn ended_for_all(&self) -> Option<u64> {
        (self.end == End::Committed).then_some(self.ended)
    }
}

/// The value that a transaction leaves in each register that it writes.
fn left(done: &Done) -> BTreeMap<u8, u32> {
    let written = done.steps.iter().filter_map(|step| match step {
        Step::Write(key, value) => Some((*key, *value)),
        Step::Read(..) => None,
    });
    written.collect()
}

/// What the history shows that its level forbids. `last` is what was found after all had ended.
///
/// # Errors
/// The anomaly, in words.
pub fn check(history: &[Done], last: &BTreeMap<u8, Option<u32>>, level: Level) -> Result<(), String> {
    let mut writer: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, done) in history.iter().enumerate() {
        for step in &done.steps {
            if let Step::Write(_, value) = step {
                writer.insert(*value, at);
            }
        }
    }
    // Of those of unknown outcome, who was seen.
    let mut is_committed: Vec<bool> = history.iter().map(|done| done.end == End::Committed).collect();
    let reads = history.iter().enumerate().flat_map(|(at, done)| {
        done.steps.iter().filter_map(move |step| match step {
            Step::Read(_, Some(value)) => Some((Some(at), *value)),
            _ => None,
        })
    });
    let left_over = last.values().flatten().map(|value| (None, *value));
    for (reader, value) in reads.chain(left_over) {
        let from = *writer.get(&value).ok_or_else(|| format!("{value} was read, and never written"))?;
        if reader == Some(from) {
            continue;
        }
        if history[from].end == End::RolledBack {
            return Err(format!("{value} of transaction {from} was read, which was rolled back"));
        }
        if !left(&history[from]).values().any(|one| *one == value) {
            return Err(format!("{value} was read, which transaction {from} overwrote itself"));
        }
        is_committed[from] = true;
    }
    let mut versions: BTreeMap<u8, Vec<(u64, usize, u32)>> = BTreeMap::new();
    for (at, done) in history.iter().enumerate() {
        for (key, value) in left(done) {
            if let Some(number) = done.number.filter(|_| done.end == End::Committed) {
                versions.entry(key).or_default().push((number, at, value));
            }
        }
    }
    let (mut before, mut misses) = (Edges::new(), Edges::new());
    for (key, versions) in &mut versions {
        versions.sort_unstable();
        for pair in versions.windows(2) {
            add(&mut before, pair[0].1, pair[1].1);
        }
        let newest = versions.last().map(|(.., value)| *value);
        match last.get(key).copied().flatten() {
            found if found == newest => {}
            // It came later, or beside.
            Some(found) if history[writer[&found]].end == End::Unknown => {}
            found => return Err(format!("{found:?} is left of {key}, whose newest is {newest:?}")),
        }
    }
    for (at, done) in history.iter().enumerate().filter(|(at, _)| is_committed[*at]) {
        let mut own = BTreeMap::new();
        for step in &done.steps {
            let (key, found) = match *step {
                Step::Write(key, value) => {
                    own.insert(key, value);
                    continue;
                }
                Step::Read(key, found) => (key, found),
            };
            if let Some(mine) = own.get(&key) {
                if found != Some(*mine) {
                    return Err(format!("transaction {at} does not see its own writes: {done:?}"));
                }
                continue;
            }
            let versions = versions.get(&key).map_or(&[][..], |versions| versions);
            let Some(value) = found else {
                if let Some((_, first, _)) = versions.first() {
                    add(&mut misses, at, *first);
                }
                continue;
            };
            add(&mut before, writer[&value], at);
            // A value without a place in the order may be anywhere in it.
            let place = versions.iter().position(|(.., known)| *known == value);
            if let Some((_, next, _)) = place.and_then(|place| versions.get(place + 1)) {
                add(&mut misses, at, *next);
            }
        }
    }
    judge(history, &is_committed, before, &misses, level)
}

mod tests {
    use super::*;

    fn done(number: u64, steps: &[Step], began: u64, ended: u64) -> Done {
        Done { steps: steps.to_vec(), end: End::Committed, number: Some(number), began, ended }
    }

    /// Each anomaly by its usual name, and from which level on it is none.
    #[test]
    fn anomalies_are_known() {
        use Step::{Read, Write};
        let judge = |history: &[Done], last: &[(u8, u32)]| {
            let last: BTreeMap<u8, Option<u32>> =
                last.iter().map(|(key, value)| (*key, Some(*value))).collect();
            [Level::Snapshot, Level::Serializable].map(|level| check(history, &last, level).is_ok())
        };
        let lost_update =
            [done(1, &[Read(1, None), Write(1, 1)], 1, 9), done(2, &[Read(1, None), Write(1, 2)], 2, 8)];
        assert_eq!(judge(&lost_update, &[(1, 2)]), [false, false]);
        let write_skew =
            [done(1, &[Read(1, None), Write(2, 1)], 1, 9), done(2, &[Read(2, None), Write(1, 2)], 2, 8)];
        assert_eq!(judge(&write_skew, &[(1, 2), (2, 1)]), [true, false]);
        let read_skew =
            [done(1, &[Write(1, 1), Write(2, 2)], 1, 9), done(2, &[Read(1, None), Read(2, Some(2))], 2, 8)];
        assert_eq!(judge(&read_skew, &[(1, 1), (2, 2)]), [false, false]);
        let stale = [done(1, &[Write(1, 1)], 1, 2), done(2, &[Read(1, None)], 3, 4)];
        assert_eq!(judge(&stale, &[(1, 1)]), [false, false]);
        let wrong_number = [done(2, &[Write(1, 1)], 1, 2), done(1, &[Write(1, 2)], 3, 4)];
        assert_eq!(judge(&wrong_number, &[(1, 1)]), [false, false]);
        let intermediate = [done(1, &[Write(1, 1), Write(1, 2)], 1, 9), done(2, &[Read(1, Some(1))], 2, 8)];
        assert_eq!(judge(&intermediate, &[(1, 2)]), [false, false]);
        let fine = [
            done(1, &[Write(1, 1)], 1, 2),
            done(3, &[Read(1, Some(1)), Write(1, 2), Read(1, Some(2))], 3, 6),
            done(2, &[Read(1, Some(1))], 4, 5),
        ];
        assert_eq!(judge(&fine, &[(1, 2)]), [true, true]);
        assert_eq!(judge(&fine, &[(1, 1)]), [false, false], "a lost one");
        let mut unknown = fine.to_vec();
        (unknown[0].end, unknown[0].number) = (End::Unknown, None);
        assert_eq!(judge(&unknown, &[(1, 2)]), [true, true]);
        unknown[0].end = End::RolledBack;
        assert_eq!(judge(&unknown, &[(1, 2)]), [false, false], "a read of it");
    }
}
