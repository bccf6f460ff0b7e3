//! What contests over one database have in common: writers whose writes name each other, and what
//! all know of them.
//!
//! Every write is one batch over two keyspaces: its own number, and the value of one key. So a
//! state says which write it ends with, and the chain of writes before that one says all that the
//! state must hold. Where the database has a log of the application's, each write is an entry of it
//! as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{ApplicationLog, Batch, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions};
use tombolo_env::simulated::Process;

use super::entries::Log;
use super::site::Site;
use crate::client::Setup;
use crate::failure::{Report, Violation};
use crate::random::Random;

/// The key of the last write's number.
pub(super) const LAST: &[u8] = b"last";
/// Keys beside it.
const KEYS: u64 = 24;
/// The keyspace beside `default`.
pub(super) const OTHER: &str = "other";

/// A write, by its writer's epoch and its number in it.
pub(super) type WriteId = (u64, u64);

/// What all know of what happened.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The write before each, and the key that it wrote.
    writes: BTreeMap<WriteId, (Option<WriteId>, u64)>,
    /// The newest write that was acknowledged as durable.
    pub(super) durable: Option<WriteId>,
    /// The newest write that a reader has shown.
    pub(super) shown: Option<WriteId>,
    /// Entries of the application's log.
    entries: Log,
    pub(super) report: Report,
}

impl History {
    /// Whether `earlier` is `later`, or is in the chain before it.
    pub(super) fn precedes(&self, earlier: Option<WriteId>, later: Option<WriteId>) -> bool {
        let Some(earlier) = earlier else { return true };
        let mut at = later;
        while let Some(id) = at {
            if id == earlier {
                return true;
            }
            at = self.writes.get(&id).and_then(|(before, _)| *before);
        }
        false
    }

    /// The newest write in the chain up to `last` that is of an epoch before `epoch`: the takeover
    /// of that epoch finds it. What later epochs wrote, it need not know of.
    fn before(&self, epoch: u64, last: Option<WriteId>) -> Option<WriteId> {
        let mut at = last;
        while let Some(id) = at.filter(|id| id.0 >= epoch) {
            at = self.writes.get(&id).and_then(|(before, _)| *before);
        }
        at
    }

    /// All that a state which ends with `last` holds.
    pub(super) fn state(&self, last: Option<WriteId>) -> BTreeMap<u64, WriteId> {
        let mut state = BTreeMap::new();
        let mut at = last;
        while let Some(id) = at {
            let Some((before, key)) = self.writes.get(&id) else { break };
            state.entry(*key).or_insert(id);
            at = *before;
        }
        state
    }

    /// An epoch has taken over, and found `last`.
    fn found(&mut self, epoch: u64, last: Option<WriteId>) -> Result<(), Stop> {
        for (what, newest) in [("acknowledged as durable", self.durable), ("shown by a reader", self.shown)] {
            let before = self.before(epoch, newest);
            if !self.precedes(before, last) {
                return Err(Stop::Violation(format!(
                    "epoch {epoch} found {last:?} and lost {before:?}, {what}"
                )));
            }
        }
        self.report.opened += 1;
        Ok(())
    }

    /// A writer was told that a write is durable.
    fn acknowledged(&mut self, id: WriteId) -> Result<(), Stop> {
        self.report.durable += 1;
        // A fenced writer may be told late of what its successor has found already.
        if self.precedes(self.durable, Some(id)) {
            self.durable = Some(id);
        } else if !self.precedes(Some(id), self.durable) {
            let newest = self.durable;
            return Err(Stop::Violation(format!(
                "{id:?} is acknowledged, and its successors wrote {newest:?} without it"
            )));
        }
        Ok(())
    }
}

/// What all processes of a world share.
#[derive(Clone)]
pub(super) struct Contest {
    pub(super) setup: Setup,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) violation: Arc<Mutex<Option<Violation>>>,
    pub(super) over: Arc<Mutex<bool>>,
}

/// Why a process stops what it is at.
pub(super) enum Stop {
    Violation(String),
    Error(Error),
    Ended,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

impl Contest {
    pub(super) fn new(setup: Setup) -> Contest {
        Contest {
            setup,
            history: Arc::default(),
            violation: Arc::new(Mutex::new(None)),
            over: Arc::new(Mutex::new(false)),
        }
    }

    /// The same, of a database that is opened as at a site.
    pub(super) fn at(&self, site: &Site<'_>) -> Contest {
        Contest { setup: site.setup(&self.setup), ..self.clone() }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }

    /// Whether a process goes on after this.
    pub(super) fn goes_on(
        &self,
        process: &Process,
        outcome: Result<(), Stop>,
        expected: &[ErrorKind],
    ) -> bool {
        let violation = match outcome {
            _ if !process.is_alive() => return false,
            Ok(()) => return true,
            Err(Stop::Ended) => return false,
            Err(Stop::Error(error)) if expected.contains(&error.kind()) => return true,
            Err(Stop::Error(error)) => error.to_string(),
            Err(Stop::Violation(what)) => what,
        };
        self.violation.lock().get_or_insert(Violation::new(violation).at(process.name()));
        false
    }
}

/// What a writer may be told that loses the database, or whose store fails.
pub(super) const TROUBLES: [ErrorKind; 6] = [
    ErrorKind::Fenced,
    ErrorKind::Closed,
    ErrorKind::OutcomeUnknown,
    ErrorKind::Retry,
    ErrorKind::Busy,
    ErrorKind::DeadlineExceeded,
];

fn encode(id: WriteId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.0.to_be_bytes());
    bytes[8..].copy_from_slice(&id.1.to_be_bytes());
    bytes
}

pub(super) fn decode(value: &[u8]) -> Option<WriteId> {
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    Some((number(value)?, number(value.get(8..)?)?))
}

/// A value of some size that says which write it is of.
fn value(id: WriteId) -> Vec<u8> {
    let mut value = encode(id).to_vec();
    value.resize(200, 7);
    value
}

/// A process that has the database open for writing.
pub(super) struct Writer<'a> {
    process: &'a Process,
    contest: &'a Contest,
    pub(super) db: Db,
    keys: Keyspace,
    other: Keyspace,
    log: Option<ApplicationLog>,
    number: u64,
    last: Option<WriteId>,
}

impl<'a> Writer<'a> {
    /// Looks at what an opening has found.
    pub(super) async fn begin(
        process: &'a Process,
        contest: &'a Contest,
        db: Db,
    ) -> Result<Writer<'a>, Stop> {
        let keys = db.default_keyspace();
        let other = match db.keyspace(OTHER) {
            Ok(other) => other,
            Err(_) => db.create_keyspace(OTHER, KeyspaceOptions::default()).await?,
        };
        let last = keys.get(LAST).await?.as_ref().and_then(|value| decode(value));
        let log = (contest.setup.application_logs > 0).then(|| db.application_log(0)).transpose()?;
        let writer = Writer { process, contest, db, keys, other, log, number: 0, last };
        writer.alive()?;
        contest.history.lock().found(writer.db.epoch().0, last)?;
        if let Some(log) = &writer.log {
            writer.read_entries(log).await?;
        }
        Ok(writer)
    }

    /// What it tells nobody counts for nothing once the process has ended.
    pub(super) fn alive(&self) -> Result<(), Stop> {
        if self.process.is_alive() { Ok(()) } else { Err(Stop::Ended) }
    }

    /// Writes once more, durably or not.
    pub(super) async fn write(&mut self, random: &mut Random) -> Result<(), Stop> {
        let (id, key) = ((self.db.epoch().0, self.number), random.below(KEYS));
        self.number += 1;
        self.contest.history.lock().writes.insert(id, (self.last, key));
        let durability = if random.percent(50) { Durability::Durable } else { Durability::Accepted };
        let mut batch = Batch::new();
        batch.put(&self.keys, LAST, encode(id));
        batch.put(&self.keys, key.to_be_bytes(), value(id));
        batch.put(&self.other, key.to_be_bytes(), value(id));
        self.db.write_with(batch, durability).await?;
        self.alive()?;
        self.last = Some(id);
        {
            let mut history = self.contest.history.lock();
            history.report.writes += 1;
            if durability == Durability::Durable {
                history.acknowledged(id)?;
            }
        }
        match self.log.clone() {
            Some(log) => self.append(&log, durability, random).await,
            None => Ok(()),
        }
    }

    /// Looks at what earlier epochs left in the application's log.
    async fn read_entries(&self, log: &ApplicationLog) -> Result<(), Stop> {
        let epoch = self.db.epoch().0;
        let mut entries = Vec::new();
        let mut earlier = log.earlier();
        loop {
            match earlier.next_async().await {
                Ok(Some(entry)) => {
                    entries.push((entry.end.epoch().0, entry.end.number(), entry.payload.to_vec()));
                }
                Ok(None) => break,
                // What a successor gives up is nothing to one that it has fenced.
                Err(_) if self.contest.history.lock().entries.may_be_gone(epoch) => {
                    return Err(Stop::Error(Error::new(
                        ErrorKind::Fenced,
                        "a successor releases what this one reads",
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.alive()?;
        self.contest.history.lock().entries.found(epoch, &entries).map_err(Stop::Violation)
    }

    /// Appends to the application's log; now and then trims it, or releases what earlier epochs
    /// left.
    async fn append(
        &self,
        log: &ApplicationLog,
        durability: Durability,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let epoch = self.db.epoch().0;
        let number = self.contest.history.lock().entries.begin(epoch);
        let position = log.append_with(Log::payload(epoch, number, random), durability).await?;
        self.alive()?;
        if position.number() != number {
            return Err(Stop::Violation(format!(
                "entry {number} of epoch {epoch} got the place {position:?}"
            )));
        }
        if durability == Durability::Durable {
            self.contest.history.lock().entries.acknowledged(epoch, number).map_err(Stop::Violation)?;
            if random.percent(5) {
                self.contest.history.lock().entries.trims(epoch, number);
                log.trim(position).await?;
                self.alive()?;
                self.contest.history.lock().entries.trimmed(epoch, number);
            }
        }
        if random.percent(3) {
            self.contest.history.lock().entries.releases(epoch);
            log.release_earlier().await?;
        }
        Ok(())
    }

    /// Reads as one who must know that nobody has taken over: nothing that was acknowledged before
    /// may be missing.
    pub(super) async fn confirm(&self) -> Result<(), Stop> {
        let durable = self.contest.history.lock().durable;
        let last = self.keys.get_confirmed(LAST).await?.as_ref().and_then(|value| decode(value));
        self.alive()?;
        if self.contest.history.lock().precedes(durable, last) {
            return Ok(());
        }
        let what = format!(
            "a confirmed read of epoch {} shows {last:?} and lacks {durable:?}, acknowledged before",
            self.db.epoch()
        );
        Err(Stop::Violation(what))
    }
}
