//! Performs the effects of the chain's machines on an object store, and tries passing troubles
//! again.

use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env, Instant, all, within};
use tombolo_format::incarnation::encode_incarnation;
use tombolo_format::manifest::snapshot::{SnapshotDecoder, SnapshotIdentity};
use tombolo_format::manifest::{Edit, RECORD_BYTES_MAX};
use tombolo_storage::backoff::{Backoff, is_passing, with_backoff};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Incarnation, Life, Listed, ObjectKind, ObjectName, ObjectStore, Placement,
    Purpose, PutOutcome, Request, Result,
};

use crate::manifest::chain::{Answer, Effect, Machine, PutAnswer, SnapshotName, Step, undecodable};
use crate::manifest::names;

/// How long a list that may be a walk may take, tries that failed included, and still be believed.
pub(super) const WALK_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a record stays that is the newest no more, where lists may be walks. Twice as long as a
/// walk is believed: measured by another clock, whose rate may differ.
pub(super) const TRUNCATION_AGE_MIN: Duration = Duration::from_secs(60);
/// Record reads in flight.
const READS_IN_FLIGHT_MAX: usize = 16;
/// Bytes of a snapshot read by one request.
const SNAPSHOT_READ_BYTES: u64 = 4 << 20;

/// How long a request may stay without an answer before it counts as lost, and is made again. What
/// it carries has some time more, on a slow line.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// The longest, of one that was lost before: each has twice the time of the one before, so that a
/// store that is slow and not silent comes to answer.
const ANSWER_TIME_LONGEST: Duration = Duration::from_secs(3600);
/// The same of a list that may be a walk through many names.
const WALK_ANSWER_TIME_MAX: Duration = Duration::from_secs(900);
/// The slowest line.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// How long a passing trouble is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryLimit {
    /// A while, then the error is the caller's.
    Bounded,
    /// As long as the process lives: a put of unknown outcome is never given up.
    Endless,
}

/// The store's answers do not fit each other.
fn contradiction() -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        "the store says that a slot of the manifest is taken, and shows \
        nothing there",
    )
    .advice(
        "let `tombolo doctor` look at the store: put-if-absent and the read after it must agree; \
            then open the database again",
    )
}

/// What `bytes` take on the slowest line.
fn carrying_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Nobody knows whether a claim is in place.
fn claim_unknown() -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        format!("the store has not said for {ANSWER_TIME_MAX:?} whether the claim is in place"),
    )
    .advice("it may stand or not: let `tombolo doctor` look at the store, then open the database again")
}

/// The store as the chain uses it.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) env: Env,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) epoch: Epoch,
    pub(crate) purpose: Purpose,
}

impl Io {
    pub(crate) fn request(&self) -> Request {
        Request::new(self.purpose, self.epoch)
    }

    /// Runs a machine to its end.
    ///
    /// # Errors
    /// Those of the store, once the time for retries ends; `OutcomeUnknown` when the store for long
    /// says that a slot is taken, and shows nothing there.
    pub(crate) async fn run<M: Machine>(
        &self,
        machine: &mut M,
        retry_limit: RetryLimit,
    ) -> Result<M::Output> {
        self.run_telling(machine, retry_limit, &mut |_| ()).await
    }

    /// As [`Io::run`]; with no limit, tells once when the store has contradicted itself for
    /// long, and goes on.
    pub(crate) async fn run_telling<M: Machine>(
        &self,
        machine: &mut M,
        retry_limit: RetryLimit,
        tell: &mut (dyn FnMut(Error) + Send),
    ) -> Result<M::Output> {
        let mut step = machine.begin();
        let (mut unknown, mut unseen) = (Backoff::new(), Backoff::new());
        let (mut is_unknown, mut is_taken, mut is_told) = (false, false, false);
        let mut unknown_since: Option<Instant> = None;
        let mut time_max = ANSWER_TIME_MAX;
        loop {
            let effect = match step {
                Step::Done(output) => return Ok(output),
                Step::Do(effect) => effect,
            };
            let asked = self.env.now();
            let answer = self.perform_within(effect, retry_limit, time_max).await?;
            // From the first unknown outcome on the same put is made again whatever the answer, so
            // a refusal needs a pause as well.
            is_unknown |= matches!(answer, Answer::Put(PutAnswer::Unknown));
            if is_unknown && matches!(answer, Answer::Put(PutAnswer::Unknown | PutAnswer::Refused(_))) {
                let since = *unknown_since.get_or_insert(asked);
                if self.env.now().since(asked) >= time_max {
                    time_max = (time_max * 2).min(ANSWER_TIME_LONGEST);
                }
                // Who opens gives up the whole of it, and does nothing that a claim that lands
                // later could harm.
                if retry_limit == RetryLimit::Bounded && self.env.now().since(since) >= ANSWER_TIME_MAX {
                    return Err(claim_unknown());
                }
                unknown.pause(&self.env).await;
            }
            // Right after a put that found its slot taken, the machine asks what the slot holds.
            if is_taken && matches!(&answer, Answer::Records(records) if records.iter().all(Option::is_none))
            {
                if unseen.is_exhausted(&self.env) && retry_limit == RetryLimit::Bounded {
                    return Err(contradiction());
                }
                if unseen.is_exhausted(&self.env) && !std::mem::replace(&mut is_told, true) {
                    tell(contradiction());
                }
                unseen.pause(&self.env).await;
            }
            is_taken = matches!(answer, Answer::Put(PutAnswer::Exists));
            step = machine.step(answer);
        }
    }

    /// What a request answers; one that has not done so in `time_max` is lost.
    ///
    /// # Errors
    /// `DeadlineExceeded` of one that is lost.
    async fn answered<T>(&self, time_max: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
        let lost = || {
            let message = format!("the store has not answered a request for {time_max:?}");
            Err(Error::new(ErrorKind::DeadlineExceeded, message)
                .advice("let `tombolo doctor` look at the store, and at the way to it"))
        };
        within(&self.env, time_max, request).await.unwrap_or_else(lost)
    }

    /// Calls `action` until it succeeds, fails for good, or the time for retries ends. No answer is
    /// a passing trouble.
    pub(crate) async fn retried<'a, T>(
        &self,
        retry_limit: RetryLimit,
        action: impl Fn() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let time_max = ANSWER_TIME_MAX + carrying_time(SNAPSHOT_READ_BYTES);
        self.retried_within(retry_limit, time_max, action).await
    }

    /// As [`Io::retried`], of requests that may take as long as `time_max`.
    async fn retried_within<'a, T>(
        &self,
        retry_limit: RetryLimit,
        time_max: Duration,
        action: impl Fn() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let mut backoff = Backoff::starting(&self.env);
        let mut time_max = time_max;
        loop {
            let asked = self.env.now();
            match self.answered(time_max, action()).await {
                Err(error)
                    if is_passing(&error)
                        && (retry_limit == RetryLimit::Endless || !backoff.is_exhausted(&self.env)) =>
                {
                    if self.env.now().since(asked) >= time_max {
                        time_max = (time_max * 2).min(ANSWER_TIME_LONGEST.max(time_max));
                    }
                    backoff.pause(&self.env).await;
                }
                result => return result,
            }
        }
    }

    pub(crate) async fn perform(&self, effect: Effect, retry_limit: RetryLimit) -> Result<Answer> {
        self.perform_within(effect, retry_limit, ANSWER_TIME_MAX).await
    }

    /// As [`Io::perform`]; a put has `time_max` to be answered.
    async fn perform_within(
        &self,
        effect: Effect,
        retry_limit: RetryLimit,
        time_max: Duration,
    ) -> Result<Answer> {
        match effect {
            Effect::NewestIncarnation => {
                let name = self.first_name(names::INCARNATION_PREFIX, retry_limit).await?;
                let number = name.map(|name| names::parse_incarnation(&name)).transpose()?;
                Ok(Answer::Newest(number.map(|incarnation| incarnation.0)))
            }
            Effect::PutIncarnation(incarnation) => {
                let bytes = Bytes::from(encode_incarnation(incarnation.0));
                Ok(Answer::Put(
                    self.put_within(
                        time_max,
                        &names::incarnation(incarnation),
                        ObjectKind::Manifest,
                        Life::Forever,
                        bytes,
                    )
                    .await,
                ))
            }
            Effect::NewestRecord(incarnation) => {
                let name = self.first_name(&names::record_prefix(incarnation), retry_limit).await?;
                Ok(Answer::Newest(name.map(|name| names::parse_record(incarnation, &name)).transpose()?))
            }
            Effect::ReadRecords(incarnation, slots) => {
                Ok(Answer::Records(self.read_records(incarnation, slots, retry_limit).await?))
            }
            Effect::ReadSnapshot(incarnation, name) => {
                Ok(Answer::Snapshot(self.read_snapshot(incarnation, name, retry_limit).await?))
            }
            Effect::PutRecord(incarnation, slot, bytes) => Ok(Answer::Put(
                self.put_within(
                    time_max,
                    &names::record(incarnation, slot),
                    ObjectKind::Manifest,
                    Life::Long,
                    bytes,
                )
                .await,
            )),
            Effect::DeleteRecord(incarnation, slot) => {
                self.delete(&names::record(incarnation, slot)).await?;
                Ok(Answer::Deleted)
            }
            Effect::Random => Ok(Answer::Random(self.random_u128())),
        }
    }

    pub(crate) fn random_u128(&self) -> u128 {
        (u128::from(self.env.random_u64()) << 64) | u128::from(self.env.random_u64())
    }

    /// The smallest name under a prefix: one atomic answer, or a walk as good as one.
    ///
    /// A walk may miss a name that is deleted while it goes on. No record is deleted within
    /// [`TRUNCATION_AGE_MIN`] of the moment when it was the newest, so that a walk of less than
    /// half that shows the record that was the newest when it began, or a newer one. But for the
    /// destruction of a database: after that a load looks again, and a claim does not
    /// (`docs/manifest.md`, limits).
    async fn first_name(&self, prefix: &str, retry_limit: RetryLimit) -> Result<Option<ObjectName>> {
        let list = || -> BoxFuture<'_, Result<(Listed, Duration)>> {
            Box::pin(async move {
                let began = self.env.now();
                let listed = self.store.list(self.request(), prefix, None, 1).await?;
                Ok((listed, self.env.now().since(began)))
            })
        };
        let list_time_max =
            if self.store.traits().lists_may_walk { WALK_ANSWER_TIME_MAX } else { ANSWER_TIME_MAX };
        let mut too_long = Backoff::new();
        loop {
            let (listed, took) = self.retried_within(retry_limit, list_time_max, list).await?;
            if took <= WALK_TIME_MAX
                || !self.store.traits().lists_may_walk
                || is_enabled(Mutant::ManifestBelievesLongWalks)
            {
                return Ok(listed.objects.into_iter().next().map(|object| object.name));
            }
            if retry_limit == RetryLimit::Bounded && too_long.is_exhausted(&self.env) {
                let error =
                    Error::new(ErrorKind::Retry, "a list of the manifest took too long to be believed")
                        .object(prefix);
                let error = error.advice(
                    "the store, or the way to it, is too slow to follow a manifest there: \
                        lists take a moment as a rule",
                );
                return Err(error
                    .expected(format!("at most {WALK_TIME_MAX:?}"))
                    .found(format!("{took:.1?}")));
            }
            too_long.pause(&self.env).await;
        }
    }

    /// One attempt; the machine decides what comes next.
    pub(crate) async fn put(
        &self,
        name: &ObjectName,
        kind: ObjectKind,
        life: Life,
        bytes: Bytes,
    ) -> PutAnswer {
        self.put_within(ANSWER_TIME_MAX, name, kind, life, bytes).await
    }

    /// As [`Io::put`], with `time_max` to be answered, and some more for what it carries.
    async fn put_within(
        &self,
        time_max: Duration,
        name: &ObjectName,
        kind: ObjectKind,
        life: Life,
        bytes: Bytes,
    ) -> PutAnswer {
        let placement = Placement::new(kind, life);
        let time_max = time_max + carrying_time(bytes.len() as u64);
        let put = self.store.put_if_absent(self.request(), name, placement, bytes);
        match self.answered(time_max, put).await {
            Ok(PutOutcome::Created) => PutAnswer::Created,
            Ok(PutOutcome::Exists) => PutAnswer::Exists,
            Err(error) => match error.kind() {
                ErrorKind::AlreadyExists => PutAnswer::Exists,
                ErrorKind::OutcomeUnknown | ErrorKind::DeadlineExceeded => PutAnswer::Unknown,
                _ => PutAnswer::Refused(error),
            },
        }
    }

    /// A whole object, or `None` when there is none.
    pub(crate) async fn read_whole(
        &self,
        name: &ObjectName,
        bytes_max: u64,
        retry_limit: RetryLimit,
    ) -> Result<Option<Bytes>> {
        let read = || -> BoxFuture<'_, Result<Bytes>> {
            Box::pin(tombolo_storage::object::read_whole(&*self.store, self.request(), name, bytes_max))
        };
        match self.retried(retry_limit, read).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_records(
        &self,
        incarnation: Incarnation,
        slots: RangeInclusive<u64>,
        retry_limit: RetryLimit,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut reads = Vec::new();
        for slot in slots {
            let io = self.clone();
            let read = async move {
                io.read_whole(&names::record(incarnation, slot), RECORD_BYTES_MAX as u64, retry_limit).await
            };
            reads.push(Box::pin(read) as BoxFuture<'static, Result<Option<Bytes>>>);
        }
        all(reads, READS_IN_FLIGHT_MAX).await.into_iter().collect()
    }

    async fn read_snapshot(
        &self,
        incarnation: Incarnation,
        name: SnapshotName,
        retry_limit: RetryLimit,
    ) -> Result<Option<Vec<Edit>>> {
        let object = names::snapshot(incarnation, name.slot, name.random);
        let mut decoder = SnapshotDecoder::new(SnapshotIdentity {
            incarnation: incarnation.0,
            slot: name.slot,
            random: name.random,
        });
        let mut edits = Vec::new();
        let mut at = 0;
        while at < name.length {
            let range = at..name.length.min(at + SNAPSHOT_READ_BYTES);
            let read = || self.store.read(self.request(), &object, range.clone());
            let piece = match self.retried(retry_limit, read).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                read => read?,
            };
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            decoder.push(&piece, &mut edits).map_err(|error| undecodable(&object, error))?;
        }
        decoder.finish(name.length, name.checksum).map_err(|error| undecodable(&object, error))?;
        Ok(Some(edits))
    }

    /// All names under a prefix, page by page.
    pub(crate) async fn list_all(&self, prefix: &str) -> Result<Vec<ObjectName>> {
        const NAMES_PER_LIST: usize = 1000;
        let mut names: Vec<ObjectName> = Vec::new();
        loop {
            let list = || self.store.list(self.request(), prefix, names.last(), NAMES_PER_LIST);
            let listed = self.retried(RetryLimit::Bounded, list).await?;
            let (empty, more) = (listed.objects.is_empty(), listed.more);
            names.extend(listed.objects.into_iter().map(|object| object.name));
            if empty || !more {
                return Ok(names);
            }
        }
    }

    /// Deletes an object. One of unknown outcome may still land; the name is never used again, or
    /// its content does not matter.
    pub(crate) async fn delete(&self, name: &ObjectName) -> Result<()> {
        match self.retried(RetryLimit::Bounded, || self.store.delete(self.request(), name)).await {
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => Ok(()),
            result => result,
        }
    }

    /// Deletes an object, and again for some time while the outcome is unknown.
    ///
    /// # Errors
    /// Of the store; `OutcomeUnknown` when it stayed so.
    pub(crate) async fn delete_surely(&self, name: &ObjectName) -> Result<()> {
        with_backoff(&self.env, || self.store.delete(self.request(), name)).await
    }
}

/// The first future's result, or `None` when the second is ready before.
pub(crate) async fn either<F: Future + Unpin>(
    mut first: F,
    mut second: BoxFuture<'static, ()>,
) -> Option<F::Output> {
    poll_fn(|context| {
        if let Poll::Ready(value) = Pin::new(&mut first).poll(context) {
            return Poll::Ready(Some(value));
        }
        second.as_mut().poll(context).map(|()| None)
    })
    .await
}
