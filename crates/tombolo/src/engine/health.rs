//! The health of a handle: whether it may go on, and what an error means for it.
//!
//! Invariant: `failure` is set once; the handle is finished for writing from then on.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tombolo_env::{Completion, Instant, completion};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use super::{ApplicationLogs, Following, Kin, MAIN_LANE, MainLog, ReadOnly, Store, View};
use crate::event::{Event, Events, Listener};
use crate::manifest;
use crate::signal::Signal;

/// See the module's documentation.
pub(crate) struct Health {
    store: Store,
    /// The log that the main stream is appended to. Changed in the commit section.
    pub(super) main: ArcSwap<MainLog>,
    /// The epoch's logs that are the application's.
    pub(crate) application: ApplicationLogs,
    /// When the handle was put together, with all of its opening but this behind it.
    pub(crate) assembled: Instant,
    /// There may be background work.
    pub(crate) work: Arc<Signal>,
    /// Background work has come on, or will never again.
    pub(crate) progress: Signal,
    /// Background tasks end at their next look.
    pub(super) stopping: AtomicBool,
    /// Verbs answer `Closed`.
    closed: AtomicBool,
    /// Verbs look closer: it is closed, or follows a writer.
    guarded: AtomicBool,
    /// How closing ended, once it has; `progress` tells.
    pub(crate) closed_with: Mutex<Option<Result<()>>>,
    /// Set after `failure`: what every write looks at.
    failed: AtomicBool,
    failure: ArcSwapOption<Error>,
    /// Set with `failure`, until it was told.
    untold: AtomicBool,
    /// Says how it reads without a claim; not set of a writer.
    pub(super) read_only: OnceLock<ReadOnly>,
    /// An event for a listener.
    pub(crate) events: Events,
    /// The engines of a database with several streams; not set where there is one.
    pub(super) kin: OnceLock<Arc<Kin>>,
}

impl Deref for Health {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Health {
    /// Of a database that was just opened.
    pub(super) fn new(
        store: Store,
        main: Arc<MainLog>,
        application: ApplicationLogs,
        listener: Option<Arc<dyn Listener>>,
    ) -> Health {
        Health {
            main: ArcSwap::new(main),
            application,
            assembled: store.env.now(),
            work: Arc::clone(store.versions.work()),
            store,
            progress: Signal::default(),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            guarded: AtomicBool::new(false),
            closed_with: Mutex::default(),
            failed: AtomicBool::new(false),
            failure: ArcSwapOption::empty(),
            untold: AtomicBool::new(false),
            read_only: OnceLock::new(),
            events: Events::new(listener),
            kin: OnceLock::new(),
        }
    }

    /// Whether verbs may go on.
    ///
    /// # Errors
    /// `Closed`; `Retry` of a reader that is too far behind.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.guarded.load(Ordering::Acquire) { self.look_closer() } else { Ok(()) }
    }

    #[cold]
    fn look_closer(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the database was closed").object(&self.place));
        }
        self.following().map_or(Ok(()), |following| following.check(self.env.now()))
    }

    /// Whether writes may go on.
    ///
    /// # Errors
    /// As [`Health::check_open`]; `Fenced` for ever once another process has taken over.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.failed.load(Ordering::Acquire) { self.failure_error() } else { Ok(()) }
    }

    #[cold]
    fn failure_error(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// What finished this handle, if anything did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.load().as_deref().cloned()
    }

    /// Finishes this handle for writing: the first reason stays.
    pub(crate) fn fail(&self, error: &Error) {
        self.fail_silently(error);
        self.tell_failure();
    }

    /// As [`Health::fail`], in the commit section, where no waker may run: the writer that leaves
    /// it calls [`Health::tell_failure`].
    pub(crate) fn fail_silently(&self, error: &Error) {
        if error.kind() == ErrorKind::Fenced && is_enabled(Mutant::FencedHandleGoesOn) {
            return;
        }
        let before = self.failure.rcu(|old| old.clone().or_else(|| Some(Arc::new(error.clone()))));
        if before.is_none() {
            self.untold.store(true, Ordering::Release);
        }
        self.failed.store(true, Ordering::Release);
    }

    /// Tells of a failure, if there is one, and wakes all whom it concerns.
    pub(crate) fn tell_failure(&self) {
        let Some(error) = self.failure() else { return };
        if self.untold.swap(false, Ordering::AcqRel) {
            tracing::warn!(error = %error, "the handle is finished for writing");
            self.events.tell(|| Event::Finished { error: error.clone() });
            if let Some(kin) = self.kin.get() {
                kin.tell(&error);
            }
        }
        self.work.raise();
        self.progress.raise();
    }

    /// Makes this the engine of a reader: whatever would write ends with `refusal`, which is no
    /// event that anybody is told of.
    pub(crate) fn set_read_only(&self, reads: ReadOnly, refusal: &Error) {
        let follows = matches!(reads, ReadOnly::Following(_));
        let _first = self.read_only.set(reads);
        self.guarded.store(follows, Ordering::Release);
        self.fail_silently(refusal);
        self.untold.store(false, Ordering::Release);
        self.tell_failure();
    }

    /// How it reads without a claim, if it does.
    pub(crate) fn reads(&self) -> Option<&ReadOnly> {
        self.read_only.get()
    }

    /// Whether this reads without a claim.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// How it follows a writer, if it does.
    pub(crate) fn following(&self) -> Option<&Arc<Following>> {
        match self.read_only.get() {
            Some(ReadOnly::Following(following) | ReadOnly::Look { following, .. }) => Some(following),
            _ => None,
        }
    }

    /// Whether it shows, without a claim, what logs hold beyond tables.
    pub(crate) fn shows_logs(&self) -> bool {
        matches!(
            self.read_only.get(),
            Some(ReadOnly::Following(_) | ReadOnly::Look { tables_only: false, .. })
        )
    }

    /// What the error of a reader without a claim means: tables that nobody keeps for it any more
    /// are no damage.
    async fn judge_read_only(&self, reads: &ReadOnly, error: Error) -> Error {
        let (lost, what) = match reads {
            // Its views know their pins: see `judge_read`.
            ReadOnly::Following(_) => return error,
            ReadOnly::Look { .. } => {
                (self.is_unnamed_by_now(&error).await, "a table was deleted while it was looked at")
            }
            ReadOnly::Checkpoint { id } => {
                let kept = self.checkpoints().is_kept(*id).await;
                (kept.is_ok_and(|kept| !kept), "the checkpoint was deleted while it was read")
            }
        };
        if !lost {
            return error;
        }
        Error::new(ErrorKind::PinLost, what).source(error).advice(
            "look again, or read a checkpoint, which keeps what it holds (`--checkpoint` at the prompt); \
            a look keeps its tables by itself where it may write to the store",
        )
    }

    /// As [`Health::judge`], of a read of `view`: what a lost pin no longer keeps is no damage.
    pub(crate) async fn judge_read(&self, view: &View, error: Error) -> Error {
        let Some(pin) = view
            .kept_by
            .as_ref()
            .filter(|_| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound))
        else {
            return self.judge(error).await;
        };
        match pin.confirm().await {
            Ok(()) => self.judge(error).await,
            Err(lost) if lost.kind() == ErrorKind::PinLost => lost.source(error),
            Err(silent) => {
                self.judge(
                    error.context(format!(
                        "whether its tables are kept for the reader is not known: {silent}"
                    )),
                )
                .await
            }
        }
    }

    /// What the error of a read means. A successor frees logs and tables that this process still
    /// names: a missing one is then no damage, but the sign of the takeover.
    pub(crate) async fn judge(&self, error: Error) -> Error {
        let is_about_objects = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound);
        if let Some(reads) = self.read_only.get().filter(|_| is_about_objects) {
            return self.judge_read_only(reads, error).await;
        }
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let fenced = match self.confirm().await {
            Ok(()) => return error,
            Err(fenced) if fenced.kind() == ErrorKind::Fenced => fenced,
            // The log cannot be asked: its nodes may be out of reach while the store is not. A
            // successor deletes nothing before its claim is there.
            Err(unknown) => match manifest::load(&self.env, &self.objects).await {
                Ok(newest)
                    if (newest.incarnation, newest.state.epoch())
                        == (self.context.incarnation, self.context.epoch) =>
                {
                    return error;
                }
                // The store cannot be asked just now either; or it can, and what it says is no
                // takeover.
                Err(silent)
                    if matches!(
                        silent.kind(),
                        ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded
                    ) =>
                {
                    return unknown
                        .context(format!("nor does the store tell who holds the database: {silent}"))
                        .source(error);
                }
                Err(other) if other.kind() != ErrorKind::NotFound => {
                    return error.context(format!(
                        "whether another process holds the database is not known: {other}"
                    ));
                }
                // Claimed by another, or destroyed.
                _ => manifest::fenced_error(),
            },
        };
        self.note(&fenced);
        fenced.source(error)
    }

    /// Finishes the handle if `error` says that it must be.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::Fenced {
            self.manifest.fence();
            self.fail(error);
        }
    }

    /// Whether background tasks must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.failure.load().is_some()
    }

    /// Verbs answer `Closed` from here on; returns whether they did already.
    pub(crate) fn set_closed(&self) -> bool {
        let before = self.closed.swap(true, Ordering::AcqRel);
        self.guarded.store(true, Ordering::Release);
        before
    }

    /// Whether verbs answer `Closed`.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this handle was closed or dropped; a reader goes on reading after its first failure
    /// to write.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The log that commits are appended to now, or that has ended and is not replaced yet.
    pub(crate) fn main_log(&self) -> Arc<MainLog> {
        self.main.load_full()
    }

    /// Puts another log in the place of one that has ended. Under the commit section.
    pub(crate) fn replace_main_log(&self, log: &Arc<MainLog>) {
        self.main.store(Arc::clone(log));
    }

    /// A ticket for an offset of the log of this lane being durable.
    pub(crate) fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>> {
        let main = self.main.load();
        if main.id.lane == lane && !(main.ended().is_some() && is_enabled(Mutant::EndedLogAcknowledges)) {
            return main.durable(end);
        }
        let (completer, durable) = completion();
        completer.complete(Ok(()));
        durable
    }

    /// As [`Health::durable`], on the calling thread.
    pub(crate) fn sync(&self, lane: u32, end: LogOffset) -> Result<()> {
        let main = self.main.load();
        if main.id.lane == lane && !(main.ended().is_some() && is_enabled(Mutant::EndedLogAcknowledges)) {
            return main.log().sync(MAIN_LANE, end);
        }
        Ok(())
    }

    /// Verifies that no other process had taken over when this was called: at the log, or in the
    /// manifest while there is none. A successor fences only what the manifest names, so that a log
    /// that has ended says nothing.
    ///
    /// # Errors
    /// `Fenced`; those of the log or the store.
    pub(crate) async fn confirm(&self) -> Result<()> {
        let main = self.main_log();
        if main.ended().is_none() {
            let confirmed = main.log().confirm().await;
            let is_fenced = confirmed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
            if is_fenced || main.ended().is_none() {
                return confirmed;
            }
        }
        let newest = manifest::load(&self.env, &self.objects).await?;
        let is_ours =
            (newest.incarnation, newest.state.epoch()) == (self.context.incarnation, self.context.epoch);
        if is_ours { Ok(()) } else { Err(manifest::fenced_error()) }
    }
}
