//! Locks of transactions on keys and ranges of keys, with fair queues, and without deadlocks.
//!
//! A request that meets what another transaction holds, or what an earlier request waits for,
//! waits. So nobody is passed by for ever. When a wait would close a circle of transactions that
//! wait for each other, the request that closes it is refused, and told the circle.
//!
//! Locks only say who waits for whom. Whether a transaction may commit is decided by the versions
//! of its keys ([`crate::read`]), locks or not. What a prepared transaction holds is kept from all
//! other writes as well.
//!
//! Invariants:
//! 1. Of two locks that meet, one transaction holds both, unless one of them is prepared.
//! 2. A waiter has somebody to wait for: a holder, or an earlier waiter that it meets.
//! 3. No waker runs under the lock of the table.
//!
//! Circles can close only where a wait begins: a lock that is given leaves those who waited for its
//! new holder waiting for the same one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Either, Env, completion, either};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

/// Most requests that wait at once.
const WAITERS_MAX: usize = 1024;

/// Locked keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    keyspace: u32,
    name: Arc<str>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Key(Bytes),
    /// From a key up to another one, which is not in it; `None`: to the end.
    Range(Bytes, Option<Bytes>),
}

/// The least key above `key`.
fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

impl Span {
    /// A key of a keyspace.
    pub(crate) fn key(keyspace: u32, name: &Arc<str>, key: Bytes) -> Span {
        Span { keyspace, name: Arc::clone(name), what: What::Key(key) }
    }

    /// A range of keys.
    pub(crate) fn range(keyspace: u32, name: &Arc<str>, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Span {
        let from = match lower {
            Bound::Unbounded => Bytes::new(),
            Bound::Included(key) => Bytes::copy_from_slice(key),
            Bound::Excluded(key) => after(key),
        };
        let to = match upper {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(Bytes::copy_from_slice(key)),
        };
        Span { keyspace, name: Arc::clone(name), what: What::Range(from, to) }
    }

    /// Keyspace, first key, and the end of a range: `None` of a key, `Some(None)` of a range
    /// without end.
    pub(crate) fn parts(&self) -> (u32, &[u8], Option<Option<&[u8]>>) {
        match &self.what {
            What::Key(key) => (self.keyspace, key, None),
            What::Range(from, to) => (self.keyspace, from, Some(to.as_deref())),
        }
    }

    /// The same again: of keys that were read from storage.
    pub(crate) fn of_parts(keyspace: u32, name: &Arc<str>, from: &[u8], end: Option<Option<&[u8]>>) -> Span {
        let from = Bytes::copy_from_slice(from);
        let what = match end {
            None => What::Key(from),
            Some(to) => What::Range(from, to.map(Bytes::copy_from_slice)),
        };
        Span { keyspace, name: Arc::clone(name), what }
    }

    fn holds(&self, key: &[u8]) -> bool {
        match &self.what {
            What::Key(own) => own == key,
            What::Range(from, to) => &from[..] <= key && to.as_ref().is_none_or(|to| key < &to[..]),
        }
    }

    fn meets(&self, other: &Span) -> bool {
        if self.keyspace != other.keyspace {
            return false;
        }
        match (&self.what, &other.what) {
            (What::Key(key), _) => other.holds(key),
            (_, What::Key(key)) => self.holds(key),
            (What::Range(from, to), What::Range(other_from, other_to)) => {
                to.as_ref().is_none_or(|to| other_from < to)
                    && other_to.as_ref().is_none_or(|other_to| from < other_to)
            }
        }
    }

    /// Whether all of `other` is in it.
    fn covers(&self, other: &Span) -> bool {
        if self.keyspace != other.keyspace {
            return false;
        }
        match (&self.what, &other.what) {
            (_, What::Key(key)) => self.holds(key),
            (What::Key(_), What::Range(..)) => false,
            (What::Range(from, to), What::Range(other_from, other_to)) => {
                from <= other_from
                    && match (to, other_to) {
                        (None, _) => true,
                        (Some(to), Some(other_to)) => other_to <= to,
                        (Some(_), None) => false,
                    }
            }
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Key(key) => write!(formatter, "key \"{}\"", key.escape_ascii())?,
            What::Range(from, Some(to)) => {
                write!(formatter, "keys from \"{}\" to \"{}\"", from.escape_ascii(), to.escape_ascii())?;
            }
            What::Range(from, None) => write!(formatter, "keys from \"{}\"", from.escape_ascii())?,
        }
        write!(formatter, " of keyspace {:?}", self.name)
    }
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    owner: u64,
    span: Span,
    turn: Completer<()>,
}

#[derive(Debug, Default)]
struct Table {
    keys: BTreeMap<(u32, Bytes), u64>,
    ranges: Vec<(Span, u64)>,
    /// What each transaction holds.
    owned: HashMap<u64, Vec<Span>>,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Prepared transactions, by the number under which they hold locks.
    prepared: HashMap<u64, Bytes>,
}

/// The table of locks of one database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// How many transactions are prepared. Writes ask it first.
    prepared: AtomicUsize,
}

impl Table {
    /// The transactions beside `owner` that hold something of `span`.
    fn holders(&self, span: &Span, owner: u64) -> BTreeSet<u64> {
        let mut holders = BTreeSet::new();
        match &span.what {
            What::Key(key) => holders.extend(self.keys.get(&(span.keyspace, key.clone()))),
            What::Range(from, to) => {
                let keys = self.keys.range((span.keyspace, from.clone())..);
                let within = keys.take_while(|((keyspace, key), _)| {
                    *keyspace == span.keyspace && to.as_ref().is_none_or(|to| key < to)
                });
                holders.extend(within.map(|(_, owner)| *owner));
            }
        }
        holders.extend(self.ranges.iter().filter(|(held, _)| held.meets(span)).map(|(_, owner)| *owner));
        holders.remove(&owner);
        holders
    }

    /// Whom a request of `owner` waits for that came before `ticket`: holders in its way, and who
    /// waits before it. Those who wait for `owner` itself it does not wait for.
    fn blockers(&self, span: &Span, owner: u64, ticket: u64) -> BTreeSet<u64> {
        let mut blockers = self.holders(span, owner);
        if is_enabled(Mutant::LockPassesWaiters) {
            return blockers;
        }
        for (_, earlier) in self.waiting.range(..ticket) {
            if earlier.owner != owner && earlier.span.meets(span) && !self.waits_for(earlier, owner) {
                blockers.insert(earlier.owner);
            }
        }
        blockers
    }

    /// Whether what `owner` holds is in the way of a waiting request.
    fn waits_for(&self, waiting: &Waiting, owner: u64) -> bool {
        self.owned.get(&owner).is_some_and(|owned| owned.iter().any(|held| held.meets(&waiting.span)))
    }

    fn is_held(&self, span: &Span, owner: u64) -> bool {
        let of_key = match &span.what {
            What::Key(key) => self.keys.get(&(span.keyspace, key.clone())) == Some(&owner),
            What::Range(..) => false,
        };
        of_key || self.ranges.iter().any(|(held, holder)| *holder == owner && held.covers(span))
    }

    fn give(&mut self, span: Span, owner: u64) {
        match &span.what {
            What::Key(key) => {
                self.keys.insert((span.keyspace, key.clone()), owner);
            }
            What::Range(..) => self.ranges.push((span.clone(), owner)),
        }
        self.owned.entry(owner).or_default().push(span);
    }

    /// Takes out the requests of `owner`. Their waiters learn of it when these are dropped, outside
    /// the lock.
    fn take_waiting(&mut self, owner: u64) -> Vec<Waiting> {
        let of_owner = self.waiting.iter().filter(|(_, waiting)| waiting.owner == owner);
        let tickets: Vec<u64> = of_owner.map(|(ticket, _)| *ticket).collect();
        tickets.iter().filter_map(|ticket| self.waiting.remove(ticket)).collect()
    }

    /// Gives waiters their locks where these are free, in their order.
    fn give_waiting(&mut self) -> Vec<Completer<()>> {
        let mut turns = Vec::new();
        let tickets: Vec<u64> = self.waiting.keys().copied().collect();
        for ticket in tickets {
            let Some(waiting) = self.waiting.get(&ticket) else { continue };
            if !self.blockers(&waiting.span, waiting.owner, ticket).is_empty() {
                continue;
            }
            if let Some(Waiting { owner, span, turn }) = self.waiting.remove(&ticket) {
                self.give(span, owner);
                turns.push(turn);
            }
        }
        turns
    }

    /// The circle that would close if `owner` waited for `blockers`: what each waits for, and who
    /// has it.
    fn circle(&self, owner: u64, span: &Span, blockers: &BTreeSet<u64>) -> Option<String> {
        // By whom each was reached, and over what.
        let mut reached: HashMap<u64, (u64, Span)> = HashMap::new();
        let mut next: Vec<u64> = Vec::new();
        for blocker in blockers {
            reached.insert(*blocker, (owner, span.clone()));
            next.push(*blocker);
        }
        while let Some(one) = next.pop() {
            for (ticket, waiting) in self.waiting.iter().filter(|(_, waiting)| waiting.owner == one) {
                for blocker in self.blockers(&waiting.span, one, *ticket) {
                    if blocker == owner {
                        return Some(told(owner, (one, &waiting.span), &reached));
                    }
                    reached.entry(blocker).or_insert_with(|| {
                        next.push(blocker);
                        (one, waiting.span.clone())
                    });
                }
            }
        }
        None
    }
}

/// A circle in words, from `owner` on.
fn told(owner: u64, (last, span): (u64, &Span), reached: &HashMap<u64, (u64, Span)>) -> String {
    let mut steps = vec![format!("transaction {last} waits for {span}, which transaction {owner} has")];
    let mut at = last;
    while at != owner {
        let Some((before, span)) = reached.get(&at) else { break };
        steps.push(format!("transaction {before} waits for {span}, which transaction {at} has"));
        at = *before;
    }
    steps.reverse();
    steps.join("; ")
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Asked {
    Held,
    Waits(Waiter),
}

/// A place in a queue; dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Waiter {
    locks: Arc<Locks>,
    ticket: u64,
    span: Span,
    turn: Completion<()>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let turns = {
            let mut table = self.locks.table.lock();
            match table.waiting.remove(&self.ticket) {
                Some(_) => table.give_waiting(),
                None => Vec::new(),
            }
        };
        turns.into_iter().for_each(|turn| turn.complete(()));
    }
}

impl Waiter {
    /// Waits for the lock, no longer than `wait_max`.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Closed` when the transaction ended meanwhile.
    pub(crate) async fn wait(mut self, env: &Env, wait_max: Duration) -> Result<()> {
        let waited = either(&mut self.turn, env.sleep(wait_max)).await;
        match waited {
            Either::First(Some(())) => Ok(()),
            Either::First(None) => {
                Err(Error::new(ErrorKind::Closed, "the transaction ended before it had its lock"))
            }
            Either::Second(()) => {
                let holders = self.locks.table.lock().holders(&self.span, u64::MAX);
                let who: Vec<_> = holders.iter().map(u64::to_string).collect();
                let message = format!("{} was locked for {wait_max:?}", self.span);
                Err(Error::new(ErrorKind::DeadlineExceeded, message)
                    .found(format!("locked by transaction {}", who.join(", ")))
                    .advice("roll back and try again, or wait longer: TransactionOptions::lock_wait"))
            }
        }
    }
}

impl Locks {
    /// Asks for a lock for the transaction `owner`.
    ///
    /// # Errors
    /// `Conflict` when a circle would close, which is told; `Busy` when very many wait.
    pub(crate) fn ask(self: &Arc<Locks>, owner: u64, span: Span) -> Result<Asked> {
        let mut table = self.table.lock();
        if table.is_held(&span, owner) {
            return Ok(Asked::Held);
        }
        let ticket = table.next;
        let blockers = table.blockers(&span, owner, ticket);
        if blockers.is_empty() {
            table.give(span, owner);
            return Ok(Asked::Held);
        }
        if table.waiting.len() >= WAITERS_MAX {
            let message = format!("{WAITERS_MAX} transactions wait for locks");
            return Err(Error::new(ErrorKind::Busy, message).advice("roll back and try again later"));
        }
        if !is_enabled(Mutant::LockIgnoresCircles)
            && let Some(circle) = table.circle(owner, &span, &blockers)
        {
            let message = format!("deadlock over {span}: {circle}");
            return Err(Error::new(ErrorKind::Conflict, message)
                .advice("roll back and try again: the others can go on then"));
        }
        table.next += 1;
        let (turn, came) = completion();
        table.waiting.insert(ticket, Waiting { owner, span: span.clone(), turn });
        Ok(Asked::Waits(Waiter { locks: Arc::clone(self), ticket, span, turn: came }))
    }

    /// Takes back all that `owner` holds and waits for.
    pub(crate) fn release(&self, owner: u64) {
        self.release_if(owner, |_| true);
    }

    /// The same, of a transaction that has ended; one that goes on as a prepared one keeps all.
    pub(crate) fn release_unprepared(&self, owner: u64) {
        self.release_if(owner, |table| {
            !table.prepared.contains_key(&owner) || is_enabled(Mutant::LateLockEndsPrepared)
        });
    }

    fn release_if(&self, owner: u64, may: impl FnOnce(&Table) -> bool) {
        let mut ended = Vec::new();
        let turns = {
            let mut table = self.table.lock();
            if !may(&table) {
                return;
            }
            let held = table.owned.remove(&owner);
            let waits = table.waiting.values().any(|waiting| waiting.owner == owner);
            if held.is_none() && !waits {
                return;
            }
            for span in held.into_iter().flatten() {
                if let What::Key(key) = span.what {
                    let place = (span.keyspace, key);
                    // A prepared transaction may have taken it over.
                    if table.keys.get(&place) == Some(&owner) {
                        table.keys.remove(&place);
                    }
                }
            }
            table.ranges.retain(|(_, holder)| *holder != owner);
            if table.prepared.remove(&owner).is_some() {
                self.prepared.fetch_sub(1, Ordering::Release);
            }
            if waits {
                ended = table.take_waiting(owner);
            }
            if table.waiting.is_empty() { Vec::new() } else { table.give_waiting() }
        };
        // Outside the lock: their waiters learn that they wait for nothing.
        drop(ended);
        turns.into_iter().for_each(|turn| turn.complete(()));
    }

    /// Takes back what `owner` waits for; it keeps what it holds.
    pub(crate) fn stop_waiting(&self, owner: u64) {
        let (ended, turns) = {
            let mut table = self.table.lock();
            let ended = table.take_waiting(owner);
            let turns = if ended.is_empty() { Vec::new() } else { table.give_waiting() };
            (ended, turns)
        };
        drop(ended);
        turns.into_iter().for_each(|turn| turn.complete(()));
    }

    /// From here on what `owner` holds is held by the prepared transaction `id`: no other write
    /// goes there.
    pub(crate) fn prepare(&self, owner: u64, id: Bytes) {
        let mut table = self.table.lock();
        if table.prepared.insert(owner, id).is_none() {
            self.prepared.fetch_add(1, Ordering::Release);
        }
    }

    /// Gives `owner` locks without asking: of a transaction that is prepared, or was before. From
    /// another transaction that has them they are taken: it cannot commit beside a prepared one.
    pub(crate) fn hold_again(&self, owner: u64, spans: Vec<Span>) {
        let mut table = self.table.lock();
        for span in spans {
            if !table.is_held(&span, owner) {
                table.give(span, owner);
            }
        }
    }

    /// Under which number the prepared transaction `id` holds its locks.
    pub(crate) fn prepared_as(&self, id: &[u8]) -> Option<u64> {
        let table = self.table.lock();
        table.prepared.iter().find(|(_, prepared)| &prepared[..] == id).map(|(owner, _)| *owner)
    }

    /// Takes back all that prepared transactions hold.
    pub(crate) fn release_all_prepared(&self) {
        let all: Vec<u64> = self.table.lock().prepared.keys().copied().collect();
        all.into_iter().for_each(|owner| self.release(owner));
    }

    /// Whether any transaction is prepared.
    #[inline]
    pub(crate) fn has_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire) != 0
    }

    /// Whether a prepared transaction beside `owner` holds something of `span`.
    ///
    /// # Errors
    /// `Conflict`, with its id.
    pub(crate) fn check_prepared(&self, span: &Span, owner: u64) -> Result<()> {
        let table = self.table.lock();
        let holders = table.holders(span, owner);
        match holders.iter().find_map(|holder| table.prepared.get(holder)) {
            Some(id) if !is_enabled(Mutant::WriteIgnoresPrepared) => Err(held_by_prepared(span, id)),
            _ => Ok(()),
        }
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.table.lock().waiting.len()
    }
}

#[cold]
fn held_by_prepared(span: &Span, id: &[u8]) -> Error {
    let message = format!("{span} is held by the prepared transaction \"{}\"", id.escape_ascii());
    Error::new(ErrorKind::Conflict, message)
        .advice("decide it (Db::decide, `tombolo db transactions decide`), then write again")
}

#[cfg(test)]
mod tests;
