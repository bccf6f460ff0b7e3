//! Clones that share a database's tables: the pins by which they keep them, and which of those are
//! needed still.
//!
//! A clone's manifest names tables where they lie, under the databases that wrote them: its
//! sources. What keeps them there is one lasting pin at each source, put and proven before the
//! commit that names the tables ([`crate::recovery`]), and given back after the commit that
//! un-names the last of them ([`crate::collection`]), or after the clone's chain has ended. A clone
//! that is gone without that leaves its pin. It names the clone, so that its finder can ask
//! there.
//!
//! Invariants:
//! 1. A pin is given back here only if a proven state of the place that it names is of another
//!    database; or of the clone, when its life has ended and no pin is left under it, or when its
//!    epoch is above that which pinned and it does not name the pin. What names the pin was
//!    committed by the epoch that put it, or by none: so no later state names it (as of tables,
//!    rule 14).
//! 2. That is proven of the database that lies there now. Where the numbers of the two databases do
//!    not tell that it is the clone, the path to this database must be the one by which the pin was
//!    made: from another one (a link, another mount), the place may lead to what never was the
//!    clone's.
//! 3. A place where nothing is found, or that does not answer, proves nothing: it may be out of
//!    reach.

use std::sync::Arc;

use tombolo_env::Env;
use tombolo_format::pin::{PIN_BYTES_MAX, Pin, PinKind, PinnedFor, decode_pin};
use tombolo_storage::location::{StoreLocation, location_of};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, ObjectStore, Purpose, Result};

use crate::collection::delete_pin;
use crate::manifest::chain::undecodable;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::driver::newest_life;
use crate::manifest::{Place, State, names};

/// Whether the pin of a clone is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloneState {
    /// The clone names tables that the pin keeps, or readers still look at one that has ended.
    Needed,
    /// The clone is being made, or its making ended before its end. Opening it once, or cloning
    /// there again, tells.
    Undecided,
    /// Nobody names what it keeps, and nobody will: [`crate::Builder::release_clone`] gives it
    /// back, and so does `tombolo gc --delete`.
    Unneeded,
    /// Nothing is found at its place, or no answer is had: it may be out of reach.
    Unknown,
}

/// A clone that shares this database's tables, as its pin tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedClone {
    /// The pin's number; as 32 hexadecimal digits it names the clone in commands.
    pub id: u128,
    /// Where the clone lies, from this database on.
    pub place: String,
    /// When the pin was made, in seconds since the Unix epoch.
    pub created_unix_seconds: u64,
    /// Tables that it keeps.
    pub tables: u64,
    /// Whether it is needed.
    pub state: CloneState,
    /// Why, for people.
    pub why: String,
    /// The life whose tables it keeps.
    incarnation: Incarnation,
}

/// A pin that was found, and the life that it lies under.
struct Found {
    incarnation: Incarnation,
    pin: Pin,
    clone: PinnedFor,
}

/// What a pin keeps of the path to the database that it lies under.
pub(crate) fn seen_from(location: &StoreLocation) -> u64 {
    xxhash_rust::xxh3::xxh3_64(location.path().as_bytes())
}

fn io(env: &Env, store: &Arc<dyn ObjectStore>) -> Io {
    Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Collection }
}

/// The pins of clones under one life. What cannot be read is left out: it keeps all tables, and is
/// told by collection.
async fn pins(io: &Io, incarnation: Incarnation) -> Result<Vec<Found>> {
    let listed = io.list_all(&names::pin_prefix(incarnation)).await?;
    let mut found = Vec::new();
    for id in listed
        .iter()
        .filter_map(|name| names::parse_pin(incarnation, name).filter(|(_, beat)| beat.is_none()))
        .map(|(id, _)| id)
    {
        let object = names::pin(incarnation, id);
        let Some(bytes) = io.read_whole(&object, PIN_BYTES_MAX as u64, RetryLimit::Bounded).await? else {
            continue;
        };
        match decode_pin(&bytes) {
            Ok(mut pin) => found.extend(pin.clone.take().map(|clone| Found { incarnation, pin, clone })),
            Err(error) => {
                tracing::warn!(error = %undecodable(&object, error), "a pin that cannot be read stays, and \
                    keeps all tables");
            }
        }
    }
    Ok(found)
}

/// The places of the clones that keep tables of a life.
///
/// # Errors
/// Of the store.
pub(crate) async fn places(
    env: &Env,
    store: &Arc<dyn ObjectStore>,
    incarnation: Incarnation,
) -> Result<Vec<String>> {
    Ok(pins(&io(env, store), incarnation).await?.into_iter().map(|found| found.clone.place).collect())
}

/// All clones that share tables of a database, of all its lives, each asked whether it needs them.
/// A list for each life, a read for each pin, and a load of each clone's manifest.
///
/// # Errors
/// Of the database's own store. What a clone's place says goes into its state.
pub(crate) async fn survey(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<Vec<SharedClone>> {
    let io = io(env, store);
    let Some((newest, _)) = newest_life(&io).await? else { return Ok(Vec::new()) };
    let mut clones = Vec::new();
    for life in 1..=newest.0 {
        for found in pins(&io, Incarnation(life)).await? {
            let (state, why) = judge(&io, &found).await;
            clones.push(SharedClone {
                id: found.pin.id,
                place: found.clone.place,
                created_unix_seconds: found.pin.created_unix_seconds,
                tables: found.pin.tables.len() as u64,
                state,
                why,
                incarnation: found.incarnation,
            });
        }
    }
    Ok(clones)
}

/// Asks the place that a pin names.
async fn judge(io: &Io, found: &Found) -> (CloneState, String) {
    match ask(io, found).await {
        Ok((state, why)) => (state, why.to_owned()),
        Err(error) => (CloneState::Unknown, format!("its place does not tell: {error}")),
    }
}

async fn ask(io: &Io, found: &Found) -> Result<(CloneState, &'static str)> {
    use CloneState::{Needed, Undecided, Unknown, Unneeded};
    let Found { pin, clone, .. } = found;
    let location = location_of(&*io.store)?;
    let is_right_path =
        seen_from(location) == clone.seen_from || is_enabled(Mutant::CloneReleasedFromElsewhere);
    let io = Io { store: location.neighbour(&clone.place)?, ..io.clone() };
    let nothing = (Unknown, "nothing lies there, which proves nothing: it may be out of reach");
    let Some((newest, tip)) = newest_life(&io).await? else {
        return Ok(if is_enabled(Mutant::CloneReleasedUnlessFound) {
            (Unneeded, "nothing lies there")
        } else {
            nothing
        });
    };
    let other_path = (
        Unknown,
        "this database is reached by another path than when it was made, from which its place may be another",
    );
    let another = if is_right_path { (Unneeded, "another database lies there") } else { other_path };
    if newest.0 < clone.incarnation {
        return Ok(another);
    }
    let has_ended = newest.0 > clone.incarnation || tip.as_ref().is_some_and(|tip| tip.state.is_destroyed());
    if has_ended {
        let left = io.list_all(&names::pin_prefix(Incarnation(clone.incarnation))).await?;
        let is_kept = !left.is_empty() && !is_enabled(Mutant::CloneReleasedDespiteReaders);
        if !is_right_path {
            return Ok(other_path);
        }
        return Ok(if is_kept {
            (Needed, "it was destroyed, and readers look at it still")
        } else {
            (Unneeded, "it was destroyed")
        });
    }
    let Some((tip, database)) = tip.as_ref().and_then(|tip| Some((tip, tip.state.database()?))) else {
        return Ok((Unknown, "a database lies there whose creation was never completed"));
    };
    let by_its_own = is_enabled(Mutant::CloneReleasedByItsOwnEpoch);
    Ok(match tip.epoch().0 {
        _ if database.id != clone.database => another,
        _ if tip.state.sources().any(|source| source.pin == pin.id) => {
            (Needed, "it names tables that lie here")
        }
        epoch if epoch > clone.epoch || by_its_own => (Unneeded, "it names no table that lies here"),
        _ => (Undecided, "it names no table that lies here yet: it is being made, or its making ended"),
    })
}

/// Gives a clone's pin back, whatever its state.
///
/// # Errors
/// Of the store.
pub(crate) async fn release(env: &Env, store: &Arc<dyn ObjectStore>, clone: &SharedClone) -> Result<()> {
    delete_pin(&io(env, store), clone.incarnation, clone.id).await
}

/// Makes sure, for a writer, that the sources of its database keep what it names, and will do so
/// when they ask: a pin at each, which names this place.
///
/// # Errors
/// `Invalid` when the database was moved; `Corrupt` when a pin is gone; those of opening the
/// sources' stores.
pub(crate) async fn check_sources(io: &Io, incarnation: Incarnation, state: &State) -> Result<()> {
    for source in state.sources() {
        // Of one that is about to be un-named the pin may be gone.
        if state.unneeded_sources().any(|unneeded| unneeded.number == source.number) {
            continue;
        }
        let place = Place::of(&io.store, source)?;
        let object = names::pin(Incarnation(source.incarnation), source.pin);
        let there = Io { store: Arc::clone(&place.store), ..io.clone() };
        let advice = "if the database or its source was moved, move it back, or move both together; else \
            salvage what is left of it";
        let Some(bytes) = there.read_whole(&object, PIN_BYTES_MAX as u64, RetryLimit::Bounded).await? else {
            let error = Error::corrupt(
                &object,
                0,
                format!("the pin under {} that keeps this database's tables", source.place),
                "nothing",
            );
            return Err(error.advice(advice));
        };
        let pin = decode_pin(&bytes).map_err(|error| undecodable(&object, error))?;
        let database = state.database().map_or(0, |database| database.id);
        let clone = pin.clone.filter(|clone| {
            pin.id == source.pin && (clone.incarnation, clone.database) == (incarnation.0, database)
        });
        let Some(clone) = clone.filter(|_| pin.kind == PinKind::Clone) else {
            return Err(Error::corrupt(&object, 32, "a pin of this database", "another"));
        };
        let own = location_of(&*io.store)?.place_from(&source.place)?;
        if own != clone.place {
            let error = Error::new(
                ErrorKind::Invalid,
                "the database was moved, and its source would ask for it elsewhere",
            );
            return Err(error.expected(&clone.place).found(&own).advice(advice));
        }
    }
    Ok(())
}
