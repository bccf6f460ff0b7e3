//! Asks the process that has a database open to do something, and waits for its answer:
//! `put the question → ask for signs of life → the answer, or silence`.
//!
//! The question is an object beside the record that asks for signs; the writer finds both where it
//! looks for those who stand by, once a minute when it has nothing to do. It signs as long as it
//! works at the answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::question::{ANSWER_BYTES_MAX, Answer, Question, Verb, decode_answer, encode_question};
use tombolo_storage::{Error, ErrorKind, Life, LogStore, ObjectKind, ObjectStore, Result};

use super::presence::{Knock, Presence, Writer, at_once, is_of_this_host, printable};
use super::{UNSEEN_MAX, bell, newest_sign};
use crate::manifest::chain::PutAnswer;
use crate::manifest::chain::open::check_log;
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::driver::io::RetryLimit;
use crate::manifest::names;

/// A writer that has given signs is given up when it gives none for so long.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What a writer has answered: see [`crate::Builder::ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered {
    /// The epoch of the writer that did it.
    pub epoch: tombolo_storage::Epoch,
    /// Facts about it: names and values.
    pub facts: Vec<(String, String)>,
}

impl Answered {
    /// A fact by its name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// As [`crate::Builder::ask`].
pub(crate) async fn ask(
    env: &Env,
    objects: &Arc<dyn ObjectStore>,
    log_store: &dyn LogStore,
    verb: Verb,
) -> Result<Answered> {
    let mut chain = ChainFollower::open(env, objects).await?;
    let state = Arc::clone(&chain.tip().state);
    check_log(&state, &log_store.identity())?;
    let Some(writer) = state.writer() else { return Err(nobody("nobody has opened the database yet")) };
    match at_once(env, log_store, writer) {
        Some(Presence::Closed(writer)) => return Err(nobody(&format!("the database was closed: {writer}"))),
        Some(Presence::Dead(writer)) => return Err(nobody(&format!("the writer has ended: {writer}"))),
        _ => {}
    }
    let (incarnation, id) = (chain.tip().incarnation, chain.io().random_u128());
    let question = Question { incarnation: incarnation.0, id, verb };
    let bytes = encode_question(&question).map_err(|error| Error::format("a question", 0, error))?;
    let name = names::question(incarnation, id);
    match chain.io().put(&name, ObjectKind::Pin, Life::Short, Bytes::from(bytes)).await {
        PutAnswer::Created | PutAnswer::Exists | PutAnswer::Unknown => {}
        PutAnswer::Refused(error) => return Err(error),
    }
    let database = state.database().map_or(0, |database| database.id);
    let rings = is_of_this_host(env, writer).then(|| {
        let (process, start) = (writer.writer.process, writer.writer.process_start);
        (process, start, bell(database, writer.epoch.0))
    });
    let mut knock = Knock::new(&mut chain, id);
    let answered = wait(&mut knock, Writer::of(writer), rings).await;
    knock.leave().await;
    for object in [name, names::answer(incarnation, id)] {
        if let Err(error) = chain.io().delete(&object).await {
            tracing::debug!(%error, "what was asked stays until the writer finds nobody who asks");
        }
    }
    answered
}

fn nobody(why: &str) -> Error {
    Error::new(ErrorKind::NotFound, why).advice("open the database, and do it there")
}

/// Waits for the answer. A writer on this host is woken, by the bell of its process that `rings`
/// names.
async fn wait(
    knock: &mut Knock<'_>,
    mut writer: Writer,
    rings: Option<(u32, u64, u128)>,
) -> Result<Answered> {
    let (env, incarnation) = (knock.chain.io().env.clone(), knock.chain.tip().incarnation);
    let answer = names::answer(incarnation, knock.id());
    let mut newest = newest_sign(knock.chain.io(), incarnation).await?;
    let (mut since, mut is_heard) = (env.now(), false);
    knock.begin().await?;
    loop {
        if let Some((process, start, key)) = rings.filter(|_| !is_heard)
            && let Err(error) = env.ring(process, start, key)
        {
            tracing::debug!(%error, "the writer's process hears no bell; it looks once a minute");
        }
        knock.pause().await?;
        let began = env.now();
        let read = knock.chain.io().read_whole(&answer, ANSWER_BYTES_MAX as u64, RetryLimit::Bounded).await?;
        if let Some(bytes) = read {
            let decoded = decode_answer(&bytes).map_err(|error| Error::format(&answer, 0, error))?;
            if decoded.incarnation != incarnation.0 || decoded.id != knock.id() {
                return Err(Error::corrupt(&answer, 32, "its own life and id", "those of another answer"));
            }
            return outcome(decoded);
        }
        let sign = newest_sign(knock.chain.io(), incarnation).await?;
        if sign > newest {
            (newest, since, is_heard) = (sign, began, true);
            continue;
        }
        knock.chain.advance().await?;
        let state = Arc::clone(&knock.chain.tip().state);
        if let Some(now) = state.writer() {
            if now.epoch != writer.epoch {
                // Its successor finds the question as well.
                (writer, since, is_heard) = (Writer::of(now), began, false);
            }
            if now.closed {
                return Err(unknown(&format!("{writer} has closed the database before it answered")));
            }
        }
        if began.since(since) >= if is_heard { SILENCE_MAX } else { UNSEEN_MAX } {
            return Err(unknown(&format!("{writer} does not answer")));
        }
    }
}

fn unknown(why: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, why)
        .advice("it may have done it, or do it yet: look; or take the database over, and do it there")
}

/// What the writer says, or the error with which it could not.
fn outcome(answer: Answer) -> Result<Answered> {
    let Answer { epoch, is_done, facts, .. } = answer;
    let facts = facts.iter().map(|(name, value)| (printable(name), printable(value))).collect();
    let answered = Answered { epoch: tombolo_storage::Epoch(epoch), facts };
    if is_done {
        return Ok(answered);
    }
    let fact = |name| answered.fact(name).unwrap_or_default();
    let kind = KINDS.into_iter().find(|kind| format!("{kind:?}") == fact("kind"));
    // A later version may have kinds that this one does not know.
    let error = Error::new(kind.unwrap_or(ErrorKind::Unsupported), fact("message"));
    Err(match fact("advice") {
        "" => error,
        advice => error.advice(advice),
    }
    .context(format!("the writer of epoch {epoch} could not")))
}

/// All that an answer may tell.
const KINDS: [ErrorKind; 17] = [
    ErrorKind::Retry,
    ErrorKind::Busy,
    ErrorKind::Conflict,
    ErrorKind::Fenced,
    ErrorKind::InUse,
    ErrorKind::OutcomeUnknown,
    ErrorKind::DeadlineExceeded,
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::Invalid,
    ErrorKind::Unsupported,
    ErrorKind::PermissionDenied,
    ErrorKind::OutOfSpace,
    ErrorKind::Corrupt,
    ErrorKind::PinLost,
    ErrorKind::Closed,
    ErrorKind::Bug,
];
