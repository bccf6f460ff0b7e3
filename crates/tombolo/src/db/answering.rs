//! The writer answers: what the prompt asks of the process that has a database open, that process
//! does, whatever program it is.
//!
//! Questions are objects that the writer finds where it looks for those who stand by. Who may put
//! one may write there anyway. Each is done once, one after the other; the answer is an object.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_format::question::{
    Answer, FACT_BYTES_MAX, LINE_END, QUESTION_BYTES_MAX, Question, Verb, decode_question, encode_answer,
};
use tombolo_storage::{Error, ErrorKind, Life, ObjectKind, Purpose, Result};

use crate::db::{Db, Handle};
use crate::deadline::Limit;
use crate::manifest::chain::PutAnswer;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::names;

/// Answers questions from here on, until the database is closed or its last handle is dropped.
pub(super) fn serve(db: &Db) {
    let engine = Arc::clone(db.engine());
    let handle = Arc::downgrade(&db.handle);
    let answering = engine.env.clone().spawn(TaskClass::Background, "answers", {
        let engine = Arc::clone(&engine);
        async move {
            loop {
                // Both before it looks: what comes in between is not missed.
                let (found, stopped) = (engine.questions.subscribe(), engine.work.subscribe());
                if engine.is_stopping() {
                    return;
                }
                let Some(id) = engine.questions.next() else {
                    tombolo_env::either(found, stopped).await;
                    continue;
                };
                let io = Io { purpose: Purpose::Manifest, ..engine.manifest.io().clone() };
                let (life, epoch) = (engine.context.incarnation, engine.context.epoch);
                if let Err(error) = answer(&io, &handle, life, epoch.0, id).await {
                    tracing::warn!(%error, "a question was not answered; whoever asked is told so by the \
                        silence");
                }
            }
        }
    });
    engine.tasks.lock().push(answering);
}

async fn answer(
    io: &Io,
    handle: &Weak<Handle>,
    life: tombolo_storage::Incarnation,
    epoch: u64,
    id: u128,
) -> Result<()> {
    let name = names::question(life, id);
    let read = io.read_whole(&name, QUESTION_BYTES_MAX as u64, RetryLimit::Bounded).await?;
    // Who asked has given up.
    let Some(bytes) = read else { return Ok(()) };
    let done = match decode_question(&bytes) {
        Ok(question) if question.incarnation == life.0 && question.id == id => {
            tracing::info!(?question.verb, "asked by somebody at the prompt");
            carry_out(handle, question).await
        }
        Ok(_) => Err(Error::corrupt(&name, 32, "its own life and id", "those of another question")),
        Err(error) => Err(Error::format(&name, 0, error)),
    };
    let (is_done, facts) = match done {
        Ok(facts) => (true, facts),
        Err(error) => (false, failure(&error)),
    };
    let answer = Answer { incarnation: life.0, id, epoch, is_done, facts };
    let bytes = encode_answer(&answer).map_err(|error| Error::format("an answer", 0, error))?;
    match io.put(&names::answer(life, id), ObjectKind::Pin, Life::Short, Bytes::from(bytes)).await {
        PutAnswer::Created | PutAnswer::Exists | PutAnswer::Unknown => Ok(()),
        PutAnswer::Refused(error) => Err(error),
    }
}

/// What an error says, as facts.
fn failure(error: &Error) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| {
        let value = value.chars().take(FACT_BYTES_MAX / 4).collect();
        (name.to_owned(), value)
    };
    vec![
        fact("kind", format!("{:?}", error.kind())),
        fact("message", error.to_string()),
        fact("advice", error.next_step().unwrap_or_default().to_owned()),
    ]
}

type Facts = Vec<(String, String)>;

/// Answers a question. The handle is held only to begin: dropping the last one ends the database,
/// as it would without a question.
async fn carry_out(handle: &Weak<Handle>, question: Question) -> Result<Facts> {
    let db = || {
        let closed = || Error::new(ErrorKind::Closed, "the database was closed");
        let handle = handle.upgrade().ok_or_else(closed)?;
        Ok::<Db, Error>(Db { handle, limit: Limit::default() })
    };
    let sizes = |prefix: &str| {
        let stats = db()?.stats();
        Ok::<Facts, Error>(vec![
            (format!("tables{prefix}"), stats.tables.to_string()),
            (format!("bytes{prefix}"), stats.table_bytes.to_string()),
            (format!("tables_shared{prefix}"), stats.tables_shared.to_string()),
        ])
    };
    match question.verb {
        Verb::Flush | Verb::Compact => {
            let mut facts = sizes("_before")?;
            let work = if question.verb == Verb::Flush { db()?.flush() } else { db()?.compact() };
            work.await?;
            facts.extend(sizes("")?);
            Ok(facts)
        }
        Verb::Checkpoint(name) => {
            let work = db()?.checkpoint(&name);
            let made = work.await?;
            Ok(vec![
                ("id".to_owned(), format!("{:032x}", made.id)),
                ("name".to_owned(), made.name),
                ("created_unix_seconds".to_owned(), made.created_unix_seconds.to_string()),
                ("last_sequence".to_owned(), made.last_sequence.to_string()),
                ("tables".to_owned(), made.tables.to_string()),
                ("table_bytes".to_owned(), made.table_bytes.to_string()),
                ("entries".to_owned(), made.entries.to_string()),
            ])
        }
        Verb::Stats => Ok(statistics(&db()?)),
        Verb::Metrics(label) => Ok(in_parts(&db()?.metrics_text(&label))),
        Verb::Properties => {
            let all = db()?.properties();
            let value = |text: String| text.chars().take(FACT_BYTES_MAX / 4).collect::<String>();
            Ok(all.iter().map(|known| (known.name.to_owned(), value(known.value.to_string()))).collect())
        }
    }
}

/// A text as facts, each with whole lines: the answer's parts in their order. Lines end with
/// [`LINE_END`].
fn in_parts(text: &str) -> Facts {
    let mut parts: Facts = Vec::new();
    for line in text.lines() {
        match parts.last_mut() {
            Some((_, part)) if part.len() + line.len() + LINE_END.len_utf8() <= FACT_BYTES_MAX => {
                part.push_str(line);
            }
            _ => parts.push(("metrics".to_owned(), line.to_owned())),
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push(LINE_END);
        }
    }
    parts
}

/// What [`Db::stats`] says, by the names of its fields, and the memory.
fn statistics(db: &Db) -> Facts {
    let (stats, memory) = (db.stats(), db.memory());
    let levels: Vec<String> = stats.tables_by_level.iter().map(u64::to_string).collect();
    let number = |name: &str, value: u64| (name.to_owned(), value.to_string());
    vec![
        number("epoch", db.epoch().0),
        number("tables", stats.tables),
        number("table_bytes", stats.table_bytes),
        ("tables_by_level".to_owned(), levels.join(" ")),
        number("tables_shared", stats.tables_shared),
        number("table_bytes_shared", stats.table_bytes_shared),
        number("memtable_bytes", stats.memtable_bytes),
        number("memtables_waiting", stats.memtables_waiting),
        number("log_bytes", stats.log_bytes),
        number("last_sequence", stats.last_sequence),
        number("replayed_bytes", stats.replayed_bytes),
        number("open_nanos", stats.open_nanos),
        number("writes", stats.writes),
        number("flushes", stats.flushes),
        number("flushed_bytes", stats.flushed_bytes),
        number("compactions", stats.compactions),
        number("compactions_running", stats.compactions_running),
        number("compacted_bytes_read", stats.compacted_bytes_read),
        number("compacted_bytes_written", stats.compacted_bytes_written),
        number("compaction_bytes_pending", stats.compaction_bytes_pending),
        number("write_delay_nanos", stats.write_delay_nanos),
        number("memory_bytes", memory.bytes()),
        number("memory_used_bytes", memory.used_bytes()),
        (
            "background_error".to_owned(),
            stats.background_error.unwrap_or_default().chars().take(FACT_BYTES_MAX / 4).collect(),
        ),
    ]
}

#[cfg(test)]
mod tests;
