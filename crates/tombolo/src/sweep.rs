//! What lies under a database's root and serves nobody any more, found and deleted by a process
//! that has no claim (rule 14).
//!
//! A writer deletes what its own epoch leaves, and the orphans of others when it opens. The objects
//! left for this are those of databases that nobody opens, and lives of a database that have ended.
//!
//! Invariants:
//! 1. A table is garbage only if a proven state has an epoch above the table's and does not name
//!    it, or if its incarnation has ended and no pin is left under it.
//! 2. An object of an unknown name is foreign: reported, and never touched. So are logs,
//!    records and claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use tombolo_env::{BoxFuture, Env, all};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, ErrorKind, Incarnation, ObjectName, ObjectStore, Purpose, Result, probe};

use crate::collection::expire_pins;
use crate::collection::machine::free_orphans;
use crate::manifest::chain::Tip;
use crate::manifest::chain::load::{Load, Proof};
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::driver::newest_life;
use crate::manifest::names;

/// Lives whose pins are waited for at once.
const LIVES_AT_ONCE: usize = 64;
/// Names of one page of a list.
const NAMES_PER_LIST: usize = 1000;

/// Why an object is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GarbageKind {
    /// A table that an older epoch wrote and no manifest names.
    Orphan,
    /// Of an earlier life of the database, which was destroyed.
    EndedLife,
    /// A snapshot of the manifest below the newest one.
    OldSnapshot,
    /// A checkpoint without its pin, or a heartbeat without its.
    Unpinned,
    /// A sign of life of a writer that has a successor.
    OldSign,
}

/// An object that serves nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GarbageObject {
    /// Its name under the database's root.
    pub name: ObjectName,
    /// Its bytes.
    pub bytes: u64,
    /// Why.
    pub kind: GarbageKind,
}

/// What a database's root holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Garbage {
    /// The database's life.
    pub incarnation: Incarnation,
    /// The epoch of the state that this was judged by.
    pub epoch: Epoch,
    /// What serves nobody, by name.
    pub objects: Vec<GarbageObject>,
    /// All else that belongs to the database: its number and bytes.
    pub kept: u64,
    /// As above.
    pub kept_bytes: u64,
    /// How many objects have no name of a database's.
    pub foreign: u64,
    /// The first of them, [`FOREIGN_NAMES_MAX`] at most: a bucket may be full of them.
    pub foreign_names: Vec<ObjectName>,
}

/// Names of foreign objects that are told.
pub const FOREIGN_NAMES_MAX: usize = 100;

/// The knowledge with which names are judged.
struct Judge<'a> {
    tip: &'a Tip,
}

/// What may keep an object, and is told by a name that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Keeper {
    /// A pin of this life.
    Pin(u128),
    /// Any pin of an earlier life.
    AnyOf(u64),
}

/// What a name is.
enum Verdict {
    Garbage(GarbageKind),
    /// Garbage, unless there is a keeper.
    Unless(Keeper, GarbageKind),
    Kept,
    Foreign,
}

/// The incarnation that a name lies under.
fn life_of(name: &ObjectName) -> Option<u64> {
    let digits = name.as_str().split_once('/')?.0;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

impl Judge<'_> {
    fn judge(&self, name: &ObjectName) -> Verdict {
        let text = name.as_str();
        if text.starts_with(names::INCARNATION_PREFIX) {
            return if names::parse_incarnation(name).is_ok() { Verdict::Kept } else { Verdict::Foreign };
        }
        // That the store was tried counts for all lives.
        if text == probe::exclusive::RECORD {
            return Verdict::Kept;
        }
        let Some(life) = life_of(name) else { return Verdict::Foreign };
        match life.cmp(&self.tip.incarnation.0) {
            std::cmp::Ordering::Greater => Verdict::Kept,
            std::cmp::Ordering::Equal => self.judge_current(name),
            std::cmp::Ordering::Less => Judge::judge_ended(Incarnation(life), name),
        }
    }

    fn judge_current(&self, name: &ObjectName) -> Verdict {
        let (incarnation, epoch) = (self.tip.incarnation, self.tip.epoch().0);
        let garbage = |is: bool, kind| if is { Verdict::Garbage(kind) } else { Verdict::Kept };
        if let Some(table) = names::parse_table(incarnation, name) {
            return garbage(free_orphans(&self.tip.state, [table]).next().is_some(), GarbageKind::Orphan);
        }
        if let Some((slot, _)) = names::parse_snapshot(incarnation, name) {
            let newest_too = is_enabled(Mutant::SweepIgnoresNewestSnapshot);
            let is_old = self.tip.snapshot.is_some_and(|newest| slot < newest.slot || newest_too);
            return garbage(is_old, GarbageKind::OldSnapshot);
        }
        if let Some(id) = names::parse_checkpoint(incarnation, name) {
            if is_enabled(Mutant::SweepIgnoresPins) {
                return Verdict::Garbage(GarbageKind::Unpinned);
            }
            return Verdict::Unless(Keeper::Pin(id), GarbageKind::Unpinned);
        }
        if let Some((id, beat)) = names::parse_pin(incarnation, name) {
            return beat.map_or(Verdict::Kept, |_| Verdict::Unless(Keeper::Pin(id), GarbageKind::Unpinned));
        }
        if let Some((of, _)) = names::parse_alive(incarnation, name) {
            return garbage(of < epoch, GarbageKind::OldSign);
        }
        if let Some((of, _)) = names::parse_application(incarnation, name) {
            // The application's to delete: which of them it needs is known to it alone.
            return garbage(is_enabled(Mutant::CollectApplicationObjects) && of < epoch, GarbageKind::Orphan);
        }
        let known = names::parse_record(incarnation, name).is_ok()
            || names::parse_standby(incarnation, name).is_some()
            || names::parse_question(incarnation, name).is_some();
        let logs = format!("{:016x}/log", incarnation.0);
        if is_enabled(Mutant::SweepTakesLogs) && name.as_str().starts_with(&logs) {
            return Verdict::Garbage(GarbageKind::Orphan);
        }
        if known || name.as_str().starts_with(&logs) { Verdict::Kept } else { Verdict::Foreign }
    }

    fn judge_ended(life: Incarnation, name: &ObjectName) -> Verdict {
        let gone = names::parse_table(life, name).is_some()
            || names::parse_snapshot(life, name).is_some()
            || names::parse_checkpoint(life, name).is_some()
            || names::parse_pin(life, name).is_some()
            || names::parse_alive(life, name).is_some()
            || names::parse_application(life, name).is_some()
            || names::parse_standby(life, name).is_some()
            || names::parse_question(life, name).is_some();
        match gone {
            true if is_enabled(Mutant::SweepIgnoresPinnedLives) => Verdict::Garbage(GarbageKind::EndedLife),
            true => Verdict::Unless(Keeper::AnyOf(life.0), GarbageKind::EndedLife),
            false => Verdict::Kept,
        }
    }
}

/// Judges all that lies under a database's root. Lists it all, page by page, and loads the
/// manifest. Holds garbage and the tables that only a pin may keep; of the rest, foreign objects
/// too, it only counts.
///
/// # Errors
/// `NotFound` when there is no database, or it was destroyed; `Corrupt`; those of the store.
pub async fn survey(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<Garbage> {
    // Proven before anything is listed: what the list shows of later epochs is none of its
    // business.
    let chain = ChainFollower::open(env, store).await?;
    let tip = chain.tip();
    let io = Io { purpose: Purpose::Collection, ..chain.io().clone() };
    let judge = Judge { tip };
    let mut garbage = Garbage {
        incarnation: tip.incarnation,
        epoch: tip.epoch(),
        objects: Vec::new(),
        kept: 0,
        kept_bytes: 0,
        foreign: 0,
        foreign_names: Vec::new(),
    };
    // A pin is put before what needs it, and its name comes later in a list: whatever the list
    // shows, its pin is in the same list.
    let (mut keepers, mut undecided) = (BTreeSet::new(), Vec::new());
    let mut after = None;
    loop {
        let page = io
            .retried(RetryLimit::Bounded, || io.store.list(io.request(), "", after.as_ref(), NAMES_PER_LIST))
            .await?;
        after = page.objects.last().map(|object| object.name.clone());
        for object in page.objects {
            keepers.extend(keeper(tip, &object.name));
            match judge.judge(&object.name) {
                Verdict::Garbage(kind) => {
                    garbage.objects.push(GarbageObject { name: object.name, bytes: object.length, kind });
                }
                Verdict::Unless(keeper, kind) => {
                    undecided.push((keeper, GarbageObject { name: object.name, bytes: object.length, kind }));
                }
                Verdict::Foreign if is_enabled(Mutant::SweepTakesForeign) => {
                    garbage.objects.push(GarbageObject {
                        name: object.name,
                        bytes: object.length,
                        kind: GarbageKind::Orphan,
                    });
                }
                Verdict::Foreign => garbage.take_foreign(object.name),
                Verdict::Kept => garbage.keep(object.length),
            }
        }
        if after.is_none() || !page.more {
            break;
        }
    }
    for (keeper, object) in undecided {
        if keepers.contains(&keeper) { garbage.keep(object.bytes) } else { garbage.objects.push(object) }
    }
    garbage.objects.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(garbage)
}

/// What a pin's name keeps.
fn keeper(tip: &Tip, name: &ObjectName) -> Option<Keeper> {
    let life = life_of(name)?;
    let (id, beat) = names::parse_pin(Incarnation(life), name)?;
    let keeper = if life == tip.incarnation.0 { Keeper::Pin(id) } else { Keeper::AnyOf(life) };
    beat.is_none().then_some(keeper)
}

impl Garbage {
    fn keep(&mut self, bytes: u64) {
        self.kept += 1;
        self.kept_bytes += bytes;
    }

    fn take_foreign(&mut self, name: ObjectName) {
        self.foreign += 1;
        if self.foreign_names.len() < FOREIGN_NAMES_MAX {
            self.foreign_names.push(name);
        }
    }
}

/// Deletes the pins of readers that have died since the life that they looked at was destroyed:
/// what they kept is garbage then, to a [`survey`] that begins later. How many there were.
///
/// With pins under lives that have ended it takes as long as the longest of their leases and a
/// margin, a bit more than two minutes at most, and less when a reader lives; else a load of each
/// life's end. The pins of an earlier life whose end cannot be read stay.
///
/// # Errors
/// `Corrupt` and `Unsupported` of the newest life; those of the store.
pub async fn expire(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<u64> {
    let io =
        Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Collection };
    let Some((newest, _)) = newest_life(&io).await? else { return Ok(0) };
    let mut ended = Vec::new();
    for life in (1..=newest.0).map(Incarnation) {
        match io.run(&mut Load::new(life, Proof::List), RetryLimit::Bounded).await.flatten() {
            Ok(tip) => ended.extend(tip.filter(|tip| tip.state.is_destroyed()).map(|_| life)),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                tracing::warn!(%error, life = life.0, "the pins of a life whose end cannot be read stay");
            }
            Err(error) => return Err(error),
        }
    }
    // Side by side: each may wait for a lease.
    let io = &io;
    let expiries = ended.into_iter().map(|life| -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { Ok(expire_pins(io, life).await?.1) })
    });
    all(expiries.collect(), LIVES_AT_ONCE).await.into_iter().sum()
}

/// Deletes what [`survey`] found, however long ago: names are never used again.
///
/// # Errors
/// Of the store; deleted objects stay deleted.
pub async fn delete(env: &Env, store: &Arc<dyn ObjectStore>, garbage: &Garbage) -> Result<()> {
    let io =
        Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Collection };
    for object in &garbage.objects {
        io.delete(&object.name).await?;
    }
    Ok(())
}
