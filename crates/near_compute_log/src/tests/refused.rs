//! A chain that takes no configuration, for long: those who wait are told, and nobody waits for
//! ever.

use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_env::BoxFuture;
use tombolo_storage::{ConfigurationChain, Log, LogEntry};

use super::*;

/// A chain that takes nothing while it refuses.
#[derive(Debug)]
pub(super) struct Refusing {
    chain: Arc<dyn ConfigurationChain>,
    /// One after the other, and again.
    refusals: Mutex<Vec<ErrorKind>>,
    /// Publications so far.
    asked: AtomicU64,
}

impl Refusing {
    fn refuse(&self, kind: ErrorKind) {
        self.refuse_by_turns(&[kind]);
    }

    pub(super) fn refuse_by_turns(&self, kinds: &[ErrorKind]) {
        *self.refusals.lock() = kinds.to_vec();
    }

    pub(super) fn accept(&self) {
        self.refusals.lock().clear();
    }
}

impl ConfigurationChain for Refusing {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals.lock();
        let Some(kind) = refusals.first().copied() else { return self.chain.publish(record) };
        refusals.rotate_left(1);
        Box::pin(async move {
            Err(Error::new(kind, "the token has expired").object("a record").advice("renew it"))
        })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.chain.named()
    }
}

/// What epoch 5 opens logs with, on a chain that may refuse.
fn refusing(history: &LogHistory<'_>) -> (LogContext, Arc<Refusing>) {
    let context = history.context(5);
    let chain = Arc::new(Refusing {
        chain: Arc::clone(&context.chain),
        refusals: Mutex::default(),
        asked: AtomicU64::new(0),
    });
    (LogContext { chain: Arc::clone(&chain) as Arc<dyn ConfigurationChain>, ..context }, chain)
}

/// Does something with a database on a chain that may refuse.
pub(super) fn on_a_chain_that_may_refuse(
    act: impl FnOnce(&Env, &LogSubject, &LogHistory<'_>, LogContext, Arc<Refusing>),
) {
    let world = World::new(7);
    let env = world.process("tester").env();
    let subject = subject(&env, &Local::with(&NODES), 64 << 10);
    let history = LogHistory::new(&subject);
    let (context, chain) = refusing(&history);
    act(&env, &subject, &history, context, chain);
}

/// Appends these, whether they are acknowledged or not. Where the last one ends.
pub(super) fn append_all(log: &dyn Log, numbers: std::ops::Range<u64>) -> LogOffset {
    numbers.fold(LogOffset::ZERO, |_, number| log.append(0, &entry(number, 900)).expect("room").end)
}

const MINUTE: Duration = Duration::from_secs(60);

/// As many entries as take more than half of a segment, after which the next one is made, and as
/// many as take more than one.
const HALF: u64 = 37;
pub(super) const MORE: u64 = 110;

#[test]
fn closing_waits_for_no_configuration_that_is_refused() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::OutcomeUnknown] {
        for count in [HALF, MORE] {
            on_a_chain_that_may_refuse(|env, subject, history, context, chain| {
                let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
                chain.refuse(kind);
                append_all(&*log, 0..count);
                let closed = env.block_on(within(env, MINUTE, log.close())).expect("it ends");
                assert_eq!(closed.is_ok(), count == HALF, "{kind:?}, {count}: {closed:?}");
                drop(log);
                let found = entries_after_takeover(history, 9);
                assert!(found >= HALF, "{kind:?}, {count}: {found}");
            });
        }
    }
}

#[test]
fn whoever_waits_is_told_after_half_a_minute_and_the_log_goes_on_once_it_is_taken() {
    on_a_chain_that_may_refuse(|env, subject, history, context, chain| {
        let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
        // What passes is told to nobody.
        chain.refuse(ErrorKind::PermissionDenied);
        let waiting = log.durable(0, append_all(&*log, 0..MORE));
        run_for(env, Duration::from_secs(25));
        chain.accept();
        env.block_on(waiting).expect("an answer").expect("it has passed");
        chain.refuse(ErrorKind::PermissionDenied);
        let waiting = log.durable(0, append_all(&*log, MORE..2 * MORE));
        let told = env
            .block_on(within(env, MINUTE, waiting))
            .expect("it is told")
            .expect("an answer")
            .expect_err("it is refused");
        assert!(
            told.kind() == ErrorKind::DeadlineExceeded && told.to_string().contains("PermissionDenied"),
            "{told}"
        );
        let refused = log.append(0, &entry(1000, 900)).expect_err("nothing is taken meanwhile");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        let message = refused.message();
        assert!(
            message.contains("PermissionDenied: the token has expired") && !message.contains("to do"),
            "{message}"
        );
        chain.accept();
        run_for(env, Duration::from_secs(1));
        append(env, &*log, 0, &entry(2 * MORE, 900)).expect("it goes on");
        let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
        let found = history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading");
        let found: Vec<LogEntry> = found.into_iter().map(|(entry, _)| entry).collect();
        assert_eq!(found, (0..=2 * MORE).map(|number| entry(number, 900)).collect::<Vec<_>>());
    });
}

#[test]
fn opening_on_a_chain_that_refuses_fails() {
    on_a_chain_that_may_refuse(|env, subject, _, context, chain| {
        chain.refuse(ErrorKind::PermissionDenied);
        let opened = env.block_on(within(env, MINUTE, subject.store.open(&context, 2))).expect("it ends");
        let error = opened.expect_err("no configuration is taken");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
}

/// A handle that is dropped without being closed leaves nothing behind that goes on.
#[test]
fn nothing_outlives_a_log_that_is_dropped() {
    on_a_chain_that_may_refuse(|env, subject, _, context, chain| {
        let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
        chain.refuse(ErrorKind::PermissionDenied);
        let waiting = log.durable(0, append_all(&*log, 0..MORE));
        run_for(env, Duration::from_secs(1));
        assert!(chain.asked.load(Ordering::Relaxed) > 2, "it is tried again");
        let ended = Arc::downgrade(&chain);
        drop((context, chain, log));
        run_for(env, Duration::from_secs(10));
        assert_eq!(ended.strong_count(), 0, "somebody publishes still");
        let told = env.block_on(waiting).expect("an answer").expect_err("it was given up");
        assert_eq!(told.kind(), ErrorKind::OutcomeUnknown, "{told}");
    });
}
