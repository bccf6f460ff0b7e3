//! Subscriptions to changes: followers with a name, whose places are kept.
//!
//! Invariants:
//! 1. While a subscription's place is there, so are all changes after it, or it is said up to which
//!    they are gone.
//! 2. Who is followed is followed again after a takeover, before anybody writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_format::change::{
    ALL_KEYSPACES, Change as Record, SubscriptionPlace, change_key, subscription_key, subscription_of,
    trimmed_key,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::condition::Condition;
use crate::db::changes::{CHANGES, Change, Changes, Followed, damaged, number_in, number_of};
use crate::db::transaction::then;
use crate::db::{Batch, Blocking, BlockingKeyspace, Db, Keyspace, check_stream};
use crate::engine::Engine;
use crate::lifecycle;
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions};

/// Most bytes of the name of a subscription.
const NAME_BYTES_MAX: usize = 255;
/// Least bytes of changes that are kept for one.
const KEPT_BYTES_MIN: u64 = 64 << 10;

/// A follower with a name, whose place is kept: [`Keyspace::subscribe`], [`Db::subscribe`].
#[derive(Debug)]
pub struct Subscription {
    changes: Changes,
    followed: Followed,
    kept_in: Keyspace,
    name: String,
    /// Up to where changes were taken.
    place: Arc<AtomicU64>,
}

impl Subscription {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Up to where changes were taken, as is durable.
    pub fn place(&self) -> u64 {
        self.place.load(Ordering::Acquire)
    }

    /// As [`Changes::with_before`].
    #[must_use]
    pub fn with_before(mut self) -> Subscription {
        self.changes.hold();
        self
    }

    /// The next change: as [`Changes::next_async`]. After a crash those since its place come again.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    pub async fn next_async(&mut self) -> Result<Change> {
        self.changes.next_async().await
    }

    /// As [`Changes::try_next_async`].
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    pub async fn try_next_async(&mut self) -> Result<Option<Change>> {
        self.changes.try_next_async().await
    }

    /// As [`Subscription::next_async`], waiting here.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    #[allow(clippy::should_implement_trait, reason = "it waits, and has an error")]
    pub fn next(&mut self) -> Result<Change> {
        self.changes.next()
    }

    /// As [`Subscription::try_next_async`], waiting here.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    pub fn try_next(&mut self) -> Result<Option<Change>> {
        self.changes.try_next()
    }

    /// Says that changes up to `sequence` were taken: they may go, and do not come again. Durable
    /// when the operation ends; one log append. A place goes on only: where another handle of the
    /// subscription has taken more, it stays there.
    ///
    /// # Errors
    /// `Invalid` for a number that was not told yet; `NotFound` when the subscription was ended;
    /// those of [`Keyspace::put_if`].
    pub fn take(&mut self, sequence: u64) -> Op<()> {
        if sequence > self.changes.sequence() {
            let error = Error::new(ErrorKind::Invalid, "a change that was not told yet");
            return Op::ready(Err(error
                .expected(format!("a number up to {}", self.changes.sequence()))
                .found(sequence.to_string())));
        }
        let (limit, env) = (self.followed.db.limit, self.followed.db.engine().env.clone());
        let (followed, kept_in) = (self.followed.clone(), self.kept_in.clone());
        let (name, place) = (self.name.clone(), Arc::clone(&self.place));
        Op::begin(limit, &env, "place of a subscription", async move {
            let taken = take(&followed, &kept_in, &name, sequence).await?;
            place.fetch_max(taken, Ordering::AcqRel);
            Ok(())
        })
    }
}

/// Says that one has taken changes up to `sequence`, unless it has taken more; up to where.
async fn take(followed: &Followed, kept_in: &Keyspace, name: &str, sequence: u64) -> Result<u64> {
    let id = followed.id();
    let key = subscription_key(id, name);
    loop {
        let Some(found) = kept_in.get_versioned(&key).await? else { return Err(missing(name)) };
        let SubscriptionPlace { sequence: place, bytes_max } =
            SubscriptionPlace::decode(&found.value).map_err(damaged)?;
        let place = if is_enabled(Mutant::PlaceGoesBack) { sequence } else { place.max(sequence) };
        let record = SubscriptionPlace { sequence: place, bytes_max }.encode();
        // Else another handle was faster, or has ended it.
        let is_same = Condition::Unchanged(Some(found.sequence));
        if !kept_in.put_if(&key, record, is_same).await?.is_met() {
            continue;
        }
        followed.db.engine().feed.change(|feed| {
            let known = feed.followed.get_mut(&id).and_then(|known| known.places.get_mut(name));
            if let Some(known) = known {
                known.0 = known.0.max(place);
            }
        });
        return Ok(place);
    }
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no subscription {name:?}"))
}

fn check(name: &str, bytes_max: u64) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::Invalid, format!("{name:?} is no name of a subscription"))
            .expected(format!("1 to {NAME_BYTES_MAX} bytes of printable text")));
    }
    if bytes_max < KEPT_BYTES_MIN {
        return Err(Error::new(ErrorKind::Invalid, "too few bytes of changes for a subscription")
            .expected(format!("at least {KEPT_BYTES_MIN}"))
            .found(bytes_max.to_string()));
    }
    Ok(())
}

impl Followed {
    fn subscribe(self, name: &str, bytes_max: u64) -> Op<Subscription> {
        let engine = Arc::clone(self.db.engine());
        let checked = check(name, bytes_max).and_then(|()| engine.check_writable());
        if let Err(error) = checked.and_then(|()| self.check_streams()) {
            return Op::ready(Err(error));
        }
        let made = self.db.make_keyspace(CHANGES, &KeyspaceOptions::default(), true);
        let name = name.to_owned();
        then(&Arc::clone(&engine), made, move |kept_in| {
            let (limit, env) = (self.db.limit, engine.env.clone());
            Op::begin(limit, &env, "subscription", async move { self.add(kept_in, name, bytes_max).await })
        })
    }

    /// # Errors
    /// `Unsupported` of another stream than the main one: its batches keep no changes.
    fn check_streams(&self) -> Result<()> {
        match &self.keyspace {
            Some(keyspace) => check_stream(keyspace.info(), "followed keyspaces"),
            None => lifecycle::check_no_streams(self.db.engine(), "a subscription to all keyspaces"),
        }
    }

    async fn add(self, kept_in: Keyspace, name: String, bytes_max: u64) -> Result<Subscription> {
        let engine = Arc::clone(self.db.engine());
        let _turn = engine.feed.changing.take().await;
        // None begins before this is followed.
        let _streams = engine.streams.beginning.take().await;
        self.check()?;
        self.check_streams()?;
        let id = self.id();
        let key = subscription_key(id, &name);
        let place = match kept_in.get(&key).await? {
            Some(place) => SubscriptionPlace::decode(&place).map_err(damaged)?.sequence,
            None => {
                // Remains of earlier ones go: nobody knows what they lack.
                let is_first = kept_in.get(trimmed_key(id)).await?.is_none()
                    || is_nobody(&kept_in, &subscription_key(id, "")).await?;
                // From here on all is noted, and nothing goes. It stays so if what follows fails:
                // nobody may know then whether the subscription is there.
                engine.feed.change(|feed| {
                    feed.kept_in = Some(Arc::clone(kept_in.info()));
                    let followed = feed.followed.entry(id).or_default();
                    followed.places.insert(name.clone(), (0, bytes_max));
                });
                // Who is in the commit section has looked before: that write is older.
                let begins = {
                    let commit = engine.stream.commit.lock();
                    engine.feed.change(|feed| {
                        if let Some(followed) = feed.followed.get_mut(&id).filter(|_| is_first) {
                            followed.begins(commit.last);
                        }
                    });
                    commit.last
                };
                let mut batch = Batch::new();
                if is_first {
                    batch.delete_range(&kept_in, change_key(id, 0), change_key(id, begins + 1));
                    batch.put(&kept_in, trimmed_key(id), begins.to_le_bytes());
                }
                let record = SubscriptionPlace { sequence: begins, bytes_max }.encode();
                batch.put(&kept_in, &key, record);
                self.db.write_with(batch, Durability::Durable).await?;
                engine.feed.change(|feed| {
                    if let Some(followed) = feed.followed.get_mut(&id) {
                        followed.places.insert(name.clone(), (begins, bytes_max));
                    }
                });
                begins
            }
        };
        let changes = Changes::new(self.clone(), kept_in.clone(), place);
        Ok(Subscription { changes, followed: self, kept_in, name, place: Arc::new(place.into()) })
    }

    fn unsubscribe(self, name: &str) -> Op<()> {
        let Some(kept_in) = self.kept_in() else { return Op::ready(Err(missing(name))) };
        let (name, limit, env) = (name.to_owned(), self.db.limit, self.db.engine().env.clone());
        Op::begin(limit, &env, "end of a subscription", async move {
            let engine = Arc::clone(self.db.engine());
            let _turn = engine.feed.changing.take().await;
            let id = self.id();
            let key = subscription_key(id, &name);
            // One that has failed halfway has a place without a record.
            let (is_followed, noted) = engine.feed.change(|feed| {
                let followed = feed.followed.get(&id);
                let is_followed = followed.is_some_and(|all| all.places.contains_key(&name));
                (is_followed, followed.map_or(0, |all| all.total_bytes))
            });
            if !is_followed && kept_in.get(&key).await?.is_none() {
                return Err(missing(&name));
            }
            // As is written: of a keyspace that was dropped nobody is followed, and places without
            // a record promise nothing.
            let is_last = is_alone(&kept_in, id, &key).await?;
            // At once: a record without what it promises would be believed.
            let batch = if is_last {
                forgetting(&kept_in, id)
            } else {
                let mut batch = Batch::new();
                batch.delete(&kept_in, &key);
                batch
            };
            self.db.write(batch).await?;
            let left = {
                // Who is in the commit section has counted its change once this is taken.
                let _commit = engine.stream.commit.lock();
                engine.feed.change(|feed| {
                    let Some(followed) = feed.followed.get_mut(&id) else { return false };
                    followed.places.remove(&name);
                    let is_left = is_last && followed.total_bytes != noted;
                    if is_last {
                        feed.followed.remove(&id);
                    }
                    is_left
                })
            };
            if left {
                // What was noted in between. The next subscription forgets it at the latest.
                let _forgotten = self.db.write(forgetting(&kept_in, id)).await;
            }
            Ok(())
        })
    }

    fn subscriptions(&self) -> Op<Vec<(String, u64)>> {
        let Some(kept_in) = self.kept_in() else { return Op::ready(Ok(Vec::new())) };
        let (id, env) = (self.id(), self.db.engine().env.clone());
        Op::start_read(&env, "list of subscriptions", async move {
            let mut all = Vec::new();
            for_each_place(&kept_in, &subscription_key(id, ""), |_, name, place| {
                all.push((name.to_owned(), place.sequence));
            })
            .await?;
            Ok(all)
        })
    }
}

/// Whether no subscription is kept under this prefix.
async fn is_nobody(kept_in: &Keyspace, prefix: &[u8]) -> Result<bool> {
    Ok(kept_in.prefix(prefix).next_async().await?.is_none())
}

/// Whether no other subscription of the subject is kept than that of this key.
async fn is_alone(kept_in: &Keyspace, id: u32, key: &[u8]) -> Result<bool> {
    let mut all = kept_in.prefix(subscription_key(id, ""));
    while let Some((other, _)) = all.next_async().await? {
        if other[..] != *key {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Changes of it are not kept any more, nor who followed it: of a subscription that failed halfway
/// nobody knows whether it is there.
fn forgetting(kept_in: &Keyspace, id: u32) -> Batch {
    let end = id.checked_add(1).map_or_else(|| vec![b't'], |next| subscription_key(next, ""));
    let mut batch = Batch::new();
    batch.delete_range(kept_in, change_key(id, 0), change_key(id, u64::MAX));
    batch.delete_range(kept_in, subscription_key(id, ""), end);
    batch.delete(kept_in, trimmed_key(id));
    batch
}

/// The subjects of which changes are there.
async fn subjects(kept_in: &Keyspace) -> Result<BTreeSet<u32>> {
    let (mut all, mut next) = (BTreeSet::new(), Some(0));
    let mut cursor = kept_in.cursor(change_key(0, 0)..=change_key(u32::MAX, u64::MAX));
    while let Some(least) = next
        && cursor.seek_async(change_key(least, 0)).await?
    {
        let Some(id) = subject_of(cursor.key()) else { break };
        all.insert(id);
        next = id.checked_add(1);
    }
    Ok(all)
}

fn subject_of(key: &[u8]) -> Option<u32> {
    key.get(1..5)?.try_into().ok().map(u32::from_be_bytes)
}

async fn for_each_place(
    kept_in: &Keyspace,
    prefix: &[u8],
    mut each: impl FnMut(u32, &str, SubscriptionPlace) + Send,
) -> Result<()> {
    let mut all = kept_in.prefix(prefix);
    while let Some((key, value)) = all.next_async().await? {
        let place = SubscriptionPlace::decode(&value).map_err(damaged)?;
        let Some((keyspace, name)) = subscription_of(&key) else { continue };
        each(keyspace, name, place);
    }
    Ok(())
}

/// Bytes and number of the last change that is kept.
async fn last_change(kept_in: &Keyspace, id: u32) -> Result<Option<(u64, u64)>> {
    let mut cursor = kept_in.cursor(change_key(id, 0)..change_key(id, u64::MAX));
    if !cursor.seek_to_last_async().await? {
        return Ok(None);
    }
    let record = Record::decode(cursor.value()).map_err(damaged)?;
    Ok(Some((record.total_bytes, number_of(cursor.key())?)))
}

impl Db {
    /// Follows again what was followed, before anybody writes.
    pub(crate) async fn follow_again(self) -> Result<Db> {
        let engine: Arc<Engine> = Arc::clone(self.engine());
        let kept_in = engine.catalog.by_name(CHANGES).filter(|_| !is_enabled(Mutant::FollowedForgotten));
        let Some(info) = kept_in else { return Ok(self) };
        let kept_in = self.handle_of(Arc::clone(&info));
        let mut all = Vec::new();
        for_each_place(&kept_in, b"s", |id, name, place| all.push((id, name.to_owned(), place))).await?;
        let is_there = |id: u32| id == ALL_KEYSPACES || engine.catalog.by_id(id).is_some();
        let mut ends = BTreeMap::new();
        for (id, ..) in &all {
            if is_there(*id) && !ends.contains_key(id) {
                let gone = kept_in.get(trimmed_key(*id)).await?;
                let gone = gone.map_or(Ok(0), |gone| number_in(&gone))?;
                ends.insert(*id, (gone, last_change(&kept_in, *id).await?));
            }
        }
        // What nobody follows any more, and what was kept of a keyspace that was dropped.
        let mut forgotten: BTreeSet<u32> = all.iter().map(|(id, ..)| *id).collect();
        forgotten.extend(subjects(&kept_in).await?);
        let mut kept = kept_in.prefix(b"t");
        while let Some((key, _)) = kept.next_async().await? {
            forgotten.extend(subject_of(&key));
        }
        forgotten.retain(|id| !ends.contains_key(id));
        engine.feed.change(|feed| {
            feed.kept_in = Some(info);
            for (id, (gone, last)) in ends {
                feed.followed.entry(id).or_default().begin(gone, last);
            }
            for (id, name, place) in &all {
                if let Some(followed) = feed.followed.get_mut(id) {
                    followed.places.insert(name.clone(), (place.sequence, place.bytes_max));
                }
            }
        });
        for id in forgotten {
            self.write_with(forgetting(&kept_in, id), Durability::Accepted).await?;
        }
        Ok(self)
    }

    /// Ends all subscriptions, and forgets all changes that are kept.
    ///
    /// # Errors
    /// Those of a write.
    pub(crate) async fn follow_nobody(&self) -> Result<()> {
        let Some(kept_in) = Followed::all(self).kept_in().filter(|_| !is_enabled(Mutant::RestoreFollows))
        else {
            return Ok(());
        };
        let engine = self.engine();
        let _turn = engine.feed.changing.take().await;
        let mut batch = Batch::new();
        batch.delete_range(&kept_in, b"c", b"u");
        self.write_with(batch, Durability::Accepted).await?;
        let _commit = engine.stream.commit.lock();
        engine.feed.change(|feed| feed.followed.clear());
        Ok(())
    }

    /// The subscription of this name to all keyspaces, if there is one, has taken changes up to a
    /// number.
    ///
    /// # Errors
    /// Those of [`Keyspace::put_if`].
    pub(crate) async fn took(&self, name: &str, sequence: u64) -> Result<()> {
        let followed = Followed::all(self);
        let Some(kept_in) = followed.kept_in() else { return Ok(()) };
        let Some(place) = kept_in.get(subscription_key(ALL_KEYSPACES, name)).await? else { return Ok(()) };
        if sequence <= SubscriptionPlace::decode(&place).map_err(damaged)?.sequence {
            return Ok(());
        }
        take(&followed, &kept_in, name, sequence).await.map(drop)
    }

    /// A durable subscription to the changes of all keyspaces: as [`Keyspace::subscribe`].
    ///
    /// # Errors
    /// As [`Keyspace::subscribe`].
    pub fn subscribe(&self, name: &str, bytes_max: u64) -> Op<Subscription> {
        Followed::all(self).subscribe(name, bytes_max)
    }

    /// As [`Keyspace::unsubscribe`], of a subscription to all keyspaces.
    ///
    /// # Errors
    /// As [`Keyspace::unsubscribe`].
    pub fn unsubscribe(&self, name: &str) -> Op<()> {
        Followed::all(self).unsubscribe(name)
    }

    /// The subscriptions to all keyspaces: their names and places.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn subscriptions(&self) -> Op<Vec<(String, u64)>> {
        Followed::all(self).subscriptions()
    }
}

impl Keyspace {
    /// A durable subscription to the keyspace's changes, which is made if there is none of the
    /// name, and goes on from its place if there is. From when it is made on, every batch that
    /// writes to the keyspace writes a record of that as well, so that such writes cost about
    /// twice. At least `bytes_max` bytes of changes (64 KiB or more) are kept for it, and not much
    /// more: of one that falls behind farther, the next verb says what it has lost. Unlogged writes
    /// to the keyspace are refused.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let db = tombolo::Db::builder("mem://orders").open().wait()?;
    /// # let orders = db.default_keyspace();
    /// let mut mirror = orders.subscribe("mirror", 1 << 30).wait()?;
    /// orders.put("1", "two books").wait()?;
    /// let change = mirror.next()?;
    /// println!("{:?}", change.events);
    /// mirror.take(change.sequence).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a name that is empty, longer than 255 bytes or not printable, and for too few
    /// bytes; those of [`Db::create_keyspace`] and [`Keyspace::put`].
    pub fn subscribe(&self, name: &str, bytes_max: u64) -> Op<Subscription> {
        Followed::keyspace(self).subscribe(name, bytes_max)
    }

    /// Ends a subscription; with the last of a keyspace its changes are not kept any more.
    ///
    /// # Errors
    /// `NotFound`; those of [`Keyspace::put`].
    pub fn unsubscribe(&self, name: &str) -> Op<()> {
        Followed::keyspace(self).unsubscribe(name)
    }

    /// The subscriptions of the keyspace: their names and places.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn subscriptions(&self) -> Op<Vec<(String, u64)>> {
        Followed::keyspace(self).subscriptions()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`Db::subscribe`].
    pub fn subscribe(&self, name: &str, bytes_max: u64) -> Result<Subscription> {
        self.db().subscribe(name, bytes_max).wait()
    }

    /// As [`Db::unsubscribe`].
    pub fn unsubscribe(&self, name: &str) -> Result<()> {
        self.db().unsubscribe(name).wait()
    }

    /// As [`Db::subscriptions`].
    pub fn subscriptions(&self) -> Result<Vec<(String, u64)>> {
        self.db().subscriptions().wait()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    /// As [`Keyspace::subscribe`].
    pub fn subscribe(&self, name: &str, bytes_max: u64) -> Result<Subscription> {
        self.keyspace().subscribe(name, bytes_max).wait()
    }

    /// As [`Keyspace::unsubscribe`].
    pub fn unsubscribe(&self, name: &str) -> Result<()> {
        self.keyspace().unsubscribe(name).wait()
    }

    /// As [`Keyspace::subscriptions`].
    pub fn subscriptions(&self) -> Result<Vec<(String, u64)>> {
        self.keyspace().subscriptions().wait()
    }
}

#[cfg(test)]
mod tests;
