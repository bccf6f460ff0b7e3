//! Judges histories of transactions that append numbers to lists, as Elle does (Kingsbury and
//! Alvaro, VLDB 2020): each number is appended once, so that a list says which transactions have
//! written it, in which order, and a read says between which two of them it lies.
//!
//! From that follows who comes before whom: `writes` (one appended after the other), `reads` (one
//! saw what the other appended), `misses` (one did not see what the other appended later), and
//! `time` (one began after the other had ended). A history is serializable if nothing comes before
//! itself. It has snapshot isolation if nothing comes before itself by paths in which each step by
//! `misses` follows one of another sort (Cerone, Bernardi, Gotsman: CONCUR 2015).

use std::collections::{BTreeMap, BTreeSet};

/// One step of a transaction.
#[derive(Clone, Debug)]
pub enum Step {
    Append(u8, u32),
    /// The list that was found, own numbers included.
    Read(u8, Vec<u32>),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed,
    RolledBack,
    /// Nobody was told.
    Unknown,
}

/// A transaction, with moments at which it began and ended.
#[derive(Clone, Debug)]
pub struct Done {
    pub steps: Vec<Step>,
    pub end: End,
    pub began: u64,
    pub ended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Snapshot,
    Serializable,
}

/// Who comes before whom.
pub(super) type Edges = BTreeMap<usize, BTreeSet<usize>>;

/// When a transaction lived.
pub(super) trait Lived: std::fmt::Debug {
    fn began(&self) -> u64;
    /// From when on all know that it was committed.
    fn ended_for_all(&self) -> Option<u64>;
}

impl Lived for Done {
    fn began(&self) -> u64 {
        self.began
    }

    fn ended_for_all(&self) -> Option<u64> {
        (self.end == End::Committed).then_some(self.ended)
    }
}

/// What the history shows that its level forbids. `last` is what was found after all had ended.
///
/// # Errors
/// The anomaly, in words.
pub fn check(history: &[Done], last: &BTreeMap<u8, Vec<u32>>, level: Level) -> Result<(), String> {
    let appended = |done: &Done| -> Vec<(u8, u32)> {
        let of = |step: &Step| match step {
            Step::Append(key, number) => Some((*key, *number)),
            Step::Read(..) => None,
        };
        done.steps.iter().filter_map(of).collect()
    };
    let mut writer: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, done) in history.iter().enumerate() {
        for (_, number) in appended(done) {
            writer.insert(number, at);
        }
    }
    // Whole or absent, as the last state says.
    let found: BTreeSet<u32> = last.values().flatten().copied().collect();
    if found.len() != last.values().map(Vec::len).sum::<usize>() {
        return Err("a number that was appended once is there twice".to_owned());
    }
    let mut is_committed = vec![true; history.len()];
    for (at, done) in history.iter().enumerate() {
        let all = appended(done);
        let there = all.iter().filter(|(_, number)| found.contains(number)).count();
        if there != 0 && there != all.len() {
            return Err(format!("a part of transaction {at} is there: {done:?}"));
        }
        is_committed[at] = match done.end {
            End::Committed if there < all.len() => return Err(format!("transaction {at} is lost: {done:?}")),
            End::RolledBack if there > 0 => {
                return Err(format!("transaction {at} was rolled back: {done:?}"));
            }
            End::Unknown => there > 0,
            end => end == End::Committed,
        };
    }
    let (mut before, mut misses) = (Edges::new(), Edges::new());
    for list in last.values() {
        for pair in list.windows(2) {
            add(&mut before, writer[&pair[0]], writer[&pair[1]]);
        }
    }
    for (at, done) in history.iter().enumerate().filter(|(at, _)| is_committed[*at]) {
        let mut own: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for step in &done.steps {
            let (key, read) = match step {
                Step::Append(key, number) => {
                    own.entry(*key).or_default().push(*number);
                    continue;
                }
                Step::Read(key, read) => (key, read),
            };
            let mine = own.get(key).map_or(&[][..], |own| own);
            let Some(others) = read.strip_suffix(mine) else {
                return Err(format!("transaction {at} does not see its own writes: {done:?}"));
            };
            let empty = Vec::new();
            let list = last.get(key).unwrap_or(&empty);
            if !list.starts_with(others) {
                return Err(format!("transaction {at} read {others:?} of {key}, which comes to {list:?}"));
            }
            if let Some(newest) = others.last() {
                let (from, next) = (writer[newest], list.get(others.len()).map(|next| writer[next]));
                if next == Some(from) {
                    return Err(format!("transaction {at} read {others:?} of {key}: a part of {from}"));
                }
                add(&mut before, from, at);
            }
            if let Some(next) = list.get(others.len()) {
                add(&mut misses, at, writer[next]);
            }
        }
    }
    judge(history, &is_committed, before, &misses, level)
}

/// Whether no transaction comes before itself, as its level means that. `before` has all steps but
/// those by `misses`, and those by time, which are added.
pub(super) fn judge<D: Lived>(
    history: &[D],
    is_committed: &[bool],
    mut before: Edges,
    misses: &Edges,
    level: Level,
) -> Result<(), String> {
    for (at, done) in history.iter().enumerate().filter(|(at, _)| is_committed[*at]) {
        for (later, other) in history.iter().enumerate().filter(|(later, _)| is_committed[*later]) {
            let ended = done.ended_for_all();
            if ended.is_some_and(|ended| ended < other.began()) {
                add(&mut before, at, later);
            }
        }
    }
    // Steps that may follow each other in any order.
    let mut steps = before.clone();
    for (from, to) in before.iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to))) {
        for next in misses.get(&to).into_iter().flatten() {
            steps.entry(from).or_default().insert(*next);
        }
    }
    if level == Level::Serializable {
        for (from, all) in misses {
            steps.entry(*from).or_default().extend(all);
        }
    }
    match circle(&steps, history.len()) {
        None => Ok(()),
        Some(circle) => {
            let told: Vec<_> = circle.iter().map(|at| format!("{at}: {:?}", history[*at])).collect();
            Err(format!("transactions that come before themselves: {}", told.join("; ")))
        }
    }
}

/// One comes before another.
pub(super) fn add(edges: &mut Edges, from: usize, to: usize) {
    if from != to {
        edges.entry(from).or_default().insert(to);
    }
}

/// A circle of steps, if there is one.
fn circle(steps: &Edges, count: usize) -> Option<Vec<usize>> {
    let mut is_done = vec![false; count];
    for start in 0..count {
        let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
        let next = |at: usize| steps.get(&at).into_iter().flatten().copied().collect::<Vec<_>>();
        if is_done[start] {
            continue;
        }
        path.push((start, next(start)));
        while let Some((at, left)) = path.last_mut() {
            let at = *at;
            match left.pop() {
                None => {
                    is_done[at] = true;
                    path.pop();
                }
                Some(to) => {
                    if let Some(begin) = path.iter().position(|(on, _)| *on == to) {
                        return Some(path[begin..].iter().map(|(at, _)| *at).collect());
                    }
                    if !is_done[to] {
                        path.push((to, next(to)));
                    }
                }
            }
        }
    }
    None
}

mod tests {
    use super::*;

    fn done(steps: &[Step], began: u64, ended: u64) -> Done {
        Done { steps: steps.to_vec(), end: End::Committed, began, ended }
    }

    fn lists(all: &[(u8, &[u32])]) -> BTreeMap<u8, Vec<u32>> {
        all.iter().map(|(key, list)| (*key, list.to_vec())).collect()
    }

    /// Each anomaly by its usual name, and from which level on it is none.
    #[test]
    fn anomalies_are_known() {
        use Step::{Append, Read};
        let both = [Level::Snapshot, Level::Serializable];
        let judge = |history: &[Done], last: &BTreeMap<u8, Vec<u32>>| {
            both.map(|level| check(history, last, level).is_ok())
        };
        let lost_update =
            [done(&[Read(1, vec![]), Append(1, 1)], 1, 9), done(&[Read(1, vec![]), Append(1, 2)], 2, 8)];
        assert_eq!(judge(&lost_update, &lists(&[(1, &[1, 2])])), [false, false]);
        let write_skew =
            [done(&[Read(1, vec![]), Append(2, 1)], 1, 9), done(&[Read(2, vec![]), Append(1, 2)], 2, 8)];
        assert_eq!(judge(&write_skew, &lists(&[(1, &[2]), (2, &[1])])), [true, false]);
        let read_skew =
            [done(&[Append(1, 1), Append(2, 2)], 1, 9), done(&[Read(1, vec![]), Read(2, vec![2])], 2, 8)];
        assert_eq!(judge(&read_skew, &lists(&[(1, &[1]), (2, &[2])])), [false, false]);
        let stale = [done(&[Append(1, 1)], 1, 2), done(&[Read(1, vec![])], 3, 4)];
        assert_eq!(judge(&stale, &lists(&[(1, &[1])])), [false, false]);
        let intermediate = [done(&[Append(1, 1), Append(1, 2)], 1, 9), done(&[Read(1, vec![1])], 2, 8)];
        assert_eq!(judge(&intermediate, &lists(&[(1, &[1, 2])])), [false, false]);
        let fine = [
            done(&[Append(1, 1)], 1, 2),
            done(&[Read(1, vec![1]), Append(1, 2), Read(1, vec![1, 2])], 3, 6),
            done(&[Read(1, vec![1])], 4, 5),
        ];
        assert_eq!(judge(&fine, &lists(&[(1, &[1, 2])])), [true, true]);
        let mut unknown = fine.to_vec();
        unknown[0].end = End::Unknown;
        assert_eq!(judge(&unknown, &lists(&[(1, &[1, 2])])), [true, true]);
        assert_eq!(judge(&fine, &lists(&[(1, &[1])])), [false, false], "a lost one");
        unknown[0].end = End::RolledBack;
        assert_eq!(judge(&unknown, &lists(&[(1, &[1, 2])])), [false, false], "a read of it");
    }
}
