//! Transactions that are prepared first and decided later, across databases, and what became of
//! transactions, by their ids.
//!
//! All that is known of them lies in a keyspace of the database's own, written as any data, in the
//! batches that it is about. So it is flushed, found again, cloned and restored with the rest.
//!
//! Invariants:
//! 1. From its prepare to its decision nobody else writes what a prepared transaction writes or
//!    rests on: it holds locks that all writes look at, again after every opening.
//! 2. The batch that applies it deletes its record. So it is applied once.
//! 3. A clone, or a restored database, may only roll back what it finds prepared: the decision was
//!    made elsewhere.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::expiry::{OperandTimes, join_operand, split_operand};
use tombolo_format::key::EntryKind;
use tombolo_format::prepared::{
    OUTCOME_KEY, PREPARED_KEY, PreparedSpan, PreparedTransaction, SpanEnd, TransactionEnd, transaction_key,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::outcomes::push_outcome;
use crate::db::transaction::{span_of, then};
use crate::db::{Blocking, BlockingTransaction, Db, Keyspace, Transaction};
use crate::engine::{Engine, unix_ms};
use crate::locks::Span;
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions, check_transaction_id};
use crate::read::{Reach, Touched};
use crate::write::{self, Prepared, Transactional};

/// The keyspace in which all this lies.
pub(super) const TRANSACTIONS: &str = "tombolo.transactions";

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Its writes took effect.
    Committed,
    /// It was prepared, and then rolled back.
    RolledBack,
    /// It is prepared, and waits for [`Db::decide`].
    InDoubt,
}

/// A transaction that is prepared, and not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// The id under which it was prepared.
    pub id: Vec<u8>,
    /// When, in milliseconds since the Unix epoch, by the clock of its host.
    pub prepared_unix_ms: u64,
    /// Its writes.
    pub writes: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Whether this database prepared it. If not, it came with a clone or a restored checkpoint,
    /// and may only be rolled back.
    pub is_own: bool,
}

/// A transaction that was prepared: it takes effect, or not, when it is decided. Dropped, it stays
/// in doubt, also after a crash: [`Db::in_doubt`].
#[derive(Debug)]
#[must_use = "it keeps others from its keys until it is decided"]
pub struct PreparedHandle {
    db: Db,
    id: Vec<u8>,
}

impl PreparedHandle {
    /// Its id.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Makes it take effect: [`Db::decide`].
    ///
    /// # Errors
    /// As [`Db::decide`].
    pub fn commit(self) -> Op<()> {
        self.db.decide(&self.id, true)
    }

    /// Rolls it back: [`Db::decide`].
    ///
    /// # Errors
    /// As [`Db::decide`].
    pub fn roll_back(self) -> Op<()> {
        self.db.decide(&self.id, false)
    }
}

fn known_already(id: &[u8], what: &str) -> Error {
    let message = format!("a transaction of the id \"{}\" {what}", id.escape_ascii());
    Error::new(ErrorKind::AlreadyExists, message)
        .advice("nothing was written; give each transaction its own id")
}

#[cold]
fn not_prepared(id: &[u8]) -> Error {
    let message = format!("there is no prepared transaction \"{}\"", id.escape_ascii());
    Error::new(ErrorKind::NotFound, message)
        .advice("Db::in_doubt lists those that are prepared; what was decided is known for a day")
}

/// By which it is told from its clones, and from what was restored from it.
fn id_of(engine: &Engine) -> u64 {
    engine.manifest.state().database().map_or(0, |database| database.id)
}

fn damaged(error: tombolo_format::FormatError) -> Error {
    Error::format(format!("keyspace {TRANSACTIONS:?}"), 0, error)
}

fn end_of_span(end: Option<Option<&[u8]>>) -> SpanEnd<'_> {
    match end {
        None => SpanEnd::Key,
        Some(Some(to)) => SpanEnd::Before(to),
        Some(None) => SpanEnd::Never,
    }
}

/// What an entry stores that is written now. Of an operand that ends this counts from the decision
/// on: what its transaction saw below it when it was prepared may have ended, and be gone.
fn written_now(kind: EntryKind, value: &[u8], now_ms: u64) -> Result<Cow<'_, [u8]>> {
    if kind != EntryKind::ExpiringMerge || is_enabled(Mutant::DecidedOperandKeepsItsTime) {
        return Ok(Cow::Borrowed(value));
    }
    let (operand, times) = split_operand(value).map_err(damaged)?;
    Ok(Cow::Owned(join_operand(operand, OperandTimes { written_ms: now_ms, ..times })))
}

impl Transaction {
    /// Whether no transaction of this id has ended, as far as is known.
    pub(super) fn outcome_is_free(&self, reserved: &Keyspace, id: &[u8]) -> Op<()> {
        if is_enabled(Mutant::OutcomeIdUnchecked) {
            return Op::ready(Ok(()));
        }
        let read = match self.shared.snapshot() {
            // What others write in the meantime is found at the commit.
            Ok(snapshot) => snapshot.get(reserved, transaction_key(OUTCOME_KEY, id)),
            Err(error) => return Op::ready(Err(error)),
        };
        let id = id.to_vec();
        then(self.shared.engine(), read, move |found| {
            Op::ready(found.map_or(Ok(()), |_| Err(known_already(&id, "has ended"))))
        })
    }

    /// The first half of a commit: from when the operation ends, the transaction can be committed
    /// whatever happens, and others write nothing that it writes or rests on, until it is decided.
    /// `id` is the caller's, of 1 to 1,024 bytes; transactions of several databases that belong
    /// together may have the same. Its record is durable, and found again after a crash.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let (one, two) = (tombolo::Db::builder("mem://one").open().wait()?, tombolo::Db::builder("mem://two").open().wait()?);
    /// let (from, to) = (one.transaction(), two.transaction());
    /// from.put(&one.default_keyspace(), "mine", "3").wait()?;
    /// to.put(&two.default_keyspace(), "yours", "7").wait()?;
    /// let prepared = [from.prepare("transfer 1").wait()?, to.prepare("transfer 1").wait()?];
    /// // Both can commit now: so both do.
    /// for one in prepared {
    ///     one.commit().wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::commit`]: it is rolled back then. `Invalid` for a wrong id, and for writes
    /// of more than 31 MiB, or 128 MiB in memory, so that the decision has room for records of
    /// those who [follow](Keyspace::subscribe) them; `Unsupported` for a transaction of a
    /// [stream](crate::KeyspaceOptions::stream); `AlreadyExists` for an id that is prepared or
    /// has ended; `OutcomeUnknown` when it may or may not be prepared, which [`Db::in_doubt`] says.
    pub fn prepare(self, id: impl AsRef<[u8]>) -> Op<PreparedHandle> {
        let id = id.as_ref().to_vec();
        if let Err(error) = check_transaction_id(&id).and_then(|()| self.check_preparable()) {
            return Op::ready(Err(error));
        }
        let (db, engine) = (self.db(), Arc::clone(self.shared.engine()));
        let op = db.reserved();
        let inner = Arc::clone(&engine);
        then(&engine, op, move |reserved| {
            let (transaction, engine) = (self, inner);
            let free = transaction.outcome_is_free(&reserved, &id);
            then(&Arc::clone(&engine), free, move |()| {
                let read = match transaction.shared.snapshot() {
                    Ok(snapshot) => snapshot.get(&reserved, transaction_key(PREPARED_KEY, &id)),
                    Err(error) => return Op::ready(Err(error)),
                };
                then(&engine, read, move |found| match found {
                    Some(_) => Op::ready(Err(known_already(&id, "is prepared"))),
                    None => transaction.put_prepared(&reserved, id),
                })
            })
        })
    }

    fn put_prepared(self, reserved: &Keyspace, id: Vec<u8>) -> Op<PreparedHandle> {
        let (number, mut parts) = match self.take() {
            Ok(taken) => taken,
            Err(error) => return Op::ready(Err(error)),
        };
        let db = self.db();
        let engine = Arc::clone(db.engine());
        let spans: Vec<Span> = parts.rests_on.iter().map(span_of).collect();
        let writes = parts.writes.to_prepared();
        let record = PreparedTransaction {
            database: id_of(&engine),
            unix_ms: unix_ms(&engine.env),
            spans: spans
                .iter()
                .map(|span| {
                    let (keyspace, from, end) = span.parts();
                    PreparedSpan { keyspace, from, end: end_of_span(end) }
                })
                .collect(),
            payload: writes.batch.payload(),
        };
        let mut prepared = Prepared::of_transaction(number);
        if let Err(error) = writes.check_decidable() {
            prepared.refuse(error);
        }
        let key = transaction_key(PREPARED_KEY, &id);
        match record.encode() {
            Ok(record) => prepared.push(reserved.info(), EntryKind::Put, &key, &record),
            Err(error) => {
                let error = Error::new(ErrorKind::Invalid, error.to_string());
                prepared.refuse(error.advice("prepare smaller transactions"));
            }
        }
        for about in [PREPARED_KEY, OUTCOME_KEY] {
            let what = Reach::Key(Bytes::from(transaction_key(about, &id)));
            parts.rests_on.push(Touched { keyspace: Arc::clone(reserved.info()), what });
        }
        let ended = parts.ended(&engine, number, true);
        let transactional = Transactional {
            prepared,
            seen: parts.snapshot.number(),
            rests_on: parts.rests_on,
            durability: Durability::Durable,
            ended,
            prepares: Some((spans, Bytes::from(id.clone()))),
        };
        let op = write::commit_transaction(&engine, transactional, db.limit);
        then(&engine, op, move |_| Op::ready(Ok(PreparedHandle { db, id })))
    }
}

/// The decision of a prepared transaction.
struct Decision {
    db: Db,
    reserved: Keyspace,
    id: Vec<u8>,
    commits: bool,
}

impl Decision {
    async fn make(self) -> Result<()> {
        let engine = Arc::clone(self.db.engine());
        let snapshot = self.db.snapshot();
        let key = transaction_key(PREPARED_KEY, &self.id);
        let Some(record) = snapshot.get(&self.reserved, &key).await? else {
            return self.made_before(None).await;
        };
        let found = PreparedTransaction::decode(&record).map_err(damaged)?;
        let is_own = found.database == id_of(&engine);
        if self.commits && !is_own && !is_enabled(Mutant::CloneCommitsPrepared) {
            let message =
                format!("transaction \"{}\" was prepared by another database", self.id.escape_ascii());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .expected("one that this database has prepared")
                .advice(
                    "roll it back: it came with a clone or a restored checkpoint, and was decided elsewhere",
                ));
        }
        let owner = engine.transactions.locks.prepared_as(&self.id).unwrap_or_default();
        let mut prepared = Prepared::of_transaction(owner);
        if self.commits {
            let now_ms = engine.time.now(unix_ms(&engine.env));
            for operation in Operations::new(found.payload).map_err(damaged)? {
                if let Operation::Entry { kind, keyspace, key, value } = operation.map_err(damaged)?
                    // Of a keyspace that was dropped nothing is left to write to.
                    && let Some(keyspace) = engine.catalog.by_id(keyspace)
                {
                    prepared.push(&keyspace, kind, key, &written_now(kind, value, now_ms)?);
                }
            }
        }
        if !is_enabled(Mutant::DecideLeavesPrepared) {
            prepared.push(self.reserved.info(), EntryKind::Delete, &key, &[]);
        }
        let end = if self.commits { TransactionEnd::Committed } else { TransactionEnd::RolledBack };
        push_outcome(&mut prepared, &self.reserved, &self.id, end);
        let what = Reach::Key(Bytes::from(key));
        let told = Arc::clone(&engine);
        let transactional = Transactional {
            prepared,
            rests_on: vec![Touched { keyspace: Arc::clone(self.reserved.info()), what }],
            seen: snapshot.number(),
            durability: Durability::Durable,
            ended: Box::new(move |fate| {
                if fate.is_ok() {
                    told.transactions.locks.release(owner);
                }
                drop(snapshot);
            }),
            prepares: None,
        };
        match write::commit_transaction(&engine, transactional, self.db.limit).await {
            Err(error) if error.kind() == ErrorKind::Conflict => self.made_before(Some(error)).await,
            committed => committed.map(drop),
        }
    }

    /// It is not prepared, or `refused` says what the commit of the decision ended with: whether it
    /// was decided so.
    async fn made_before(&self, refused: Option<Error>) -> Result<()> {
        let wanted =
            if self.commits { TransactionOutcome::Committed } else { TransactionOutcome::RolledBack };
        let id = self.id.escape_ascii();
        match (self.db.transaction_outcome(&self.id).await?, refused) {
            (Some(outcome), _) if outcome == wanted => Ok(()),
            // It waits for its decision still.
            (Some(TransactionOutcome::InDoubt), Some(refused)) => Err(refused),
            (Some(outcome), _) => {
                let message = format!("transaction \"{id}\" was decided otherwise");
                Err(Error::new(ErrorKind::Conflict, message)
                    .expected(format!("{wanted:?}"))
                    .found(format!("{outcome:?}")))
            }
            (None, _) => Err(not_prepared(&self.id)),
        }
    }
}

impl Db {
    /// The keyspace of the database's own, made if it is not there.
    pub(super) fn reserved(&self) -> Op<Keyspace> {
        if let Some(reserved) = self.reserved_if_any() {
            return Op::ready(Ok(reserved));
        }
        self.make_keyspace(TRANSACTIONS, &KeyspaceOptions::default(), true)
    }

    fn reserved_if_any(&self) -> Option<Keyspace> {
        let info = self.engine().catalog.by_name(TRANSACTIONS)?;
        Some(Keyspace::new(Arc::clone(&self.handle), info, self.limit))
    }

    /// Commits a prepared transaction, or rolls it back; durable when the operation ends. Deciding
    /// it twice the same way succeeds. One log append.
    ///
    /// # Errors
    /// `NotFound` when no such transaction is prepared, or was within a day; `Conflict` when it was
    /// decided otherwise; `Unsupported` for a commit of what a clone has brought along; those of
    /// [`Db::write`].
    pub fn decide(&self, id: impl AsRef<[u8]>, commits: bool) -> Op<()> {
        let id = id.as_ref().to_vec();
        if let Err(error) = check_transaction_id(&id).and_then(|()| self.engine().check_writable()) {
            return Op::ready(Err(error));
        }
        let Some(reserved) = self.reserved_if_any() else { return Op::ready(Err(not_prepared(&id))) };
        let decision = Decision { db: self.clone(), reserved, id, commits };
        Op::begin(self.limit, &self.engine().env, "decision", decision.make())
    }

    /// The transactions that are prepared and not decided, by id. Reads them.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn in_doubt(&self) -> Op<Vec<InDoubt>> {
        let Some(reserved) = self.reserved_if_any() else {
            return Op::ready(self.engine().check_open().map(|()| Vec::new()));
        };
        let database = id_of(self.engine());
        Op::limited(self.limit, &self.engine().env, "list of transactions", || {
            Op::start_read(&self.engine().env, "list of transactions", async move {
                let mut all = Vec::new();
                for_each_prepared(&reserved, |id, found| {
                    all.push(InDoubt {
                        id: id.to_vec(),
                        prepared_unix_ms: found.unix_ms,
                        writes: Operations::new(found.payload).map_err(damaged)?.remaining(),
                        bytes: found.payload.len() as u64,
                        is_own: found.database == database,
                    });
                    Ok(())
                })
                .await?;
                Ok(all)
            })
        })
    }

    /// What became of the transaction of this id; `None`: nothing is known of it, so that it was
    /// not committed within a day ([`crate::TransactionOptions::id`]) and is not prepared. The
    /// epoch is verified at the log, so that the answer is that of the database's writer.
    ///
    /// # Errors
    /// As [`Keyspace::get_confirmed`]; `Invalid` for a wrong id.
    pub fn transaction_outcome(&self, id: impl AsRef<[u8]>) -> Op<Option<TransactionOutcome>> {
        let id = id.as_ref();
        if let Err(error) = check_transaction_id(id) {
            return Op::ready(Err(error));
        }
        let Some(reserved) = self.reserved_if_any() else {
            return then(self.engine(), self.confirm(), |()| Op::ready(Ok(None)));
        };
        let keys = [OUTCOME_KEY, PREPARED_KEY].map(|about| transaction_key(about, id));
        let (engine, db) = (Arc::clone(self.engine()), self.clone());
        // Both at one moment: a decision moves it from the one to the other.
        let read = reserved.multi_get(&keys);
        then(&engine, read, move |found| {
            let outcome = match &found[..] {
                [Some(end), _] => TransactionEnd::decode(end).map_err(damaged).map(|end| match end {
                    TransactionEnd::Committed => Some(TransactionOutcome::Committed),
                    TransactionEnd::RolledBack => Some(TransactionOutcome::RolledBack),
                }),
                [None, Some(_)] => Ok(Some(TransactionOutcome::InDoubt)),
                _ => Ok(None),
            };
            let engine = Arc::clone(db.engine());
            then(&engine, db.confirm(), move |()| Op::ready(outcome))
        })
    }

    /// Lets go of the locks of all prepared transactions until the next opening: changes
    /// are written that came after they were decided elsewhere.
    pub(crate) fn let_go_of_prepared(&self) {
        if !is_enabled(Mutant::RestoreHoldsPrepared) {
            self.engine().transactions.locks.release_all_prepared();
        }
    }

    /// Holds the locks of all prepared transactions again, before anybody writes.
    pub(crate) async fn hold_prepared(self) -> Result<Db> {
        let Some(reserved) = self.reserved_if_any() else { return Ok(self) };
        let engine = Arc::clone(self.engine());
        let transactions = &engine.transactions;
        for_each_prepared(&reserved, |id, found| {
            let number = transactions.number();
            let spans = found.spans.iter().filter_map(|span| {
                let end = match span.end {
                    SpanEnd::Key => None,
                    SpanEnd::Before(to) => Some(Some(to)),
                    SpanEnd::Never => Some(None),
                };
                let keyspace = engine.catalog.by_id(span.keyspace)?;
                Some(Span::of_parts(keyspace.id, &keyspace.name, span.from, end))
            });
            if !is_enabled(Mutant::PreparedNotHeldAgain) {
                transactions.locks.hold_again(number, spans.collect());
                transactions.locks.prepare(number, Bytes::copy_from_slice(id));
            }
            Ok(())
        })
        .await?;
        Ok(self)
    }
}

async fn for_each_prepared(
    reserved: &Keyspace,
    mut each: impl FnMut(&[u8], &PreparedTransaction<'_>) -> Result<()>,
) -> Result<()> {
    let mut all = reserved.prefix([PREPARED_KEY]);
    while let Some((key, value)) = all.next_async().await? {
        let found = PreparedTransaction::decode(&value).map_err(damaged)?;
        each(key.get(1..).unwrap_or_default(), &found)?;
    }
    Ok(())
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingTransaction {
    /// As [`Transaction::prepare`].
    pub fn prepare(self, id: impl AsRef<[u8]>) -> Result<PreparedHandle> {
        self.into_inner().prepare(id).wait()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`Db::decide`].
    pub fn decide(&self, id: impl AsRef<[u8]>, commits: bool) -> Result<()> {
        self.db().decide(id, commits).wait()
    }

    /// As [`Db::in_doubt`].
    pub fn in_doubt(&self) -> Result<Vec<InDoubt>> {
        self.db().in_doubt().wait()
    }

    /// As [`Db::transaction_outcome`].
    pub fn transaction_outcome(&self, id: impl AsRef<[u8]>) -> Result<Option<TransactionOutcome>> {
        self.db().transaction_outcome(id).wait()
    }
}
