//! Whether put-if-absent is what it is called: many try for one name at once, and one may win.
//!
//! Everything else rests on it (rule 1). Some stores take the condition and look no further than to
//! whether the name is taken just then; two writers would then both believe that they own the
//! database.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env, all};

use crate::object::read_whole;
use crate::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome,
    Request, Result,
};

/// Who tries for one name at once.
pub const RACERS: usize = 8;
/// How often.
pub const RACES: usize = 6;

/// Bytes of an object of the probe.
const BYTES: usize = 512;

/// The object that says that a store was tried.
pub const RECORD: &str = "probe/put-if-absent";
/// Most bytes of it.
const RECORD_BYTES_MAX: u64 = 4096;

fn request() -> Request {
    Request::new(Purpose::Open, Epoch::NONE)
}

fn placement(life: Life) -> Placement {
    Placement::new(ObjectKind::Other, life)
}

/// Lets many try for one name, several times, and removes what was put.
///
/// # Errors
/// `Unsupported` when a race had another number of winners than one, when a name then held what the
/// winner had not put, or when a put that was made again changed it: no database can be kept safe
/// there. What the store says otherwise.
pub async fn put_if_absent(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<()> {
    let root = format!("probe/{:016x}{:016x}", env.random_u64(), env.random_u64());
    let mut names = Vec::new();
    for race in 0..RACES {
        names.push(ObjectName::new(format!("{root}/{race}"))?);
    }
    let mut verdict = Ok(());
    for name in &names {
        verdict = run_race(store, name).await;
        if verdict.is_err() {
            break;
        }
    }
    for name in &names {
        // What stays is garbage of a few hundred bytes; the verdict matters more.
        if let Err(error) = store.delete(request(), name).await {
            tracing::debug!(%error, %name, "an object of the probe stays");
        }
    }
    verdict
}

/// One race for one name, and a look at what it left.
async fn run_race(store: &Arc<dyn ObjectStore>, name: &ObjectName) -> Result<()> {
    let bytes = |racer: usize| Bytes::from(vec![u8::try_from(racer % 256).unwrap_or(0); BYTES]);
    let racers = (0..RACERS).map(|racer| -> BoxFuture<'_, Result<PutOutcome>> {
        store.put_if_absent(request(), name, placement(Life::Short), bytes(racer))
    });
    let mut winners = Vec::new();
    for (racer, outcome) in all(racers.collect(), RACERS).await.into_iter().enumerate() {
        match outcome {
            Ok(PutOutcome::Created) => winners.push(racer),
            Ok(PutOutcome::Exists) => {}
            Err(error) => return Err(error.context("trying put-if-absent")),
        }
    }
    let [winner] = winners[..] else {
        return Err(broken(store, name, "exactly one winner", format!("{} of {RACERS}", winners.len())));
    };
    check_holds(store, name, &bytes(winner), "what the winner put").await?;
    // As after a lost answer: the same again, and another's late attempt.
    for again in [winner, (winner + 1) % RACERS] {
        if store.put_if_absent(request(), name, placement(Life::Short), bytes(again)).await?
            == PutOutcome::Created
        {
            return Err(broken(store, name, "a taken name", "that it was created again"));
        }
    }
    check_holds(store, name, &bytes(winner), "what the winner put, unchanged").await
}

async fn check_holds(
    store: &Arc<dyn ObjectStore>,
    name: &ObjectName,
    bytes: &Bytes,
    expected: &str,
) -> Result<()> {
    let found = read_whole(&**store, request(), name, BYTES as u64).await?;
    if found == *bytes { Ok(()) } else { Err(broken(store, name, expected, "another's bytes")) }
}

fn broken(
    store: &Arc<dyn ObjectStore>,
    name: &ObjectName,
    expected: &str,
    found: impl std::fmt::Display,
) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the put-if-absent of {} is broken: two writers could both own a database here",
            store.describe()
        ),
    )
    .object(name)
    .expected(expected)
    .found(found)
    .advice("use a store with atomic conditional puts: docs/bucket.md names some that were tried")
}

/// Tries a store that must prove itself, unless its record says that it was, and records the
/// result.
///
/// Costs one read when it was tried before.
///
/// # Errors
/// As [`put_if_absent`].
pub async fn prove(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<()> {
    if !store.traits().must_prove_put_if_absent || recorded(store).await?.is_some() {
        return Ok(());
    }
    put_if_absent(env, store).await?;
    record(env, store).await
}

/// Records that a store was tried, and found sound.
pub(super) async fn record(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<()> {
    let text = format!(
        "put-if-absent: one of {RACERS} won each of {RACES} races\nunix_seconds: {}\nstore: {}\nversion: \
        {}\n",
        env.unix_time().as_secs(),
        store.describe(),
        env!("CARGO_PKG_VERSION"),
    );
    match store
        .put_if_absent(request(), &ObjectName::new(RECORD)?, placement(Life::Forever), text.into())
        .await
    {
        // The record spares the next creation the races; it is not what makes the store safe.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::OutcomeUnknown => Ok(()),
        Err(error) => Err(error),
    }
}

/// What was recorded when a store was tried; `None` when it was not.
///
/// # Errors
/// The store's.
pub async fn recorded(store: &Arc<dyn ObjectStore>) -> Result<Option<String>> {
    match read_whole(&**store, request(), &ObjectName::new(RECORD)?, RECORD_BYTES_MAX).await {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
