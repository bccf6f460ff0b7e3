//! Log stores through layers; object stores through layers are checked beside them.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::conformance::log::{LogHistory, LogSubject, check_log_store, entry};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Chances, Fault, FaultLogStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{TraceLogStore, Tracer};
use tombolo_storage::{ErrorKind, LogOffset, LogStore};

fn subject(env: &Env, wrap: impl FnOnce(Arc<dyn LogStore>) -> Arc<dyn LogStore>) -> LogSubject {
    let store = wrap(Arc::new(MemoryLogStore::unnamed(env)));
    LogSubject { env: env.clone(), store, objects: Arc::new(MemoryObjectStore::unnamed(env)) }
}

#[test]
fn a_log_without_faults_and_a_traced_one_keep_every_promise() {
    let world = World::new(1);
    for env in [Env::real(), world.process("tester").env()] {
        let tracer = Tracer::new(&env);
        check_log_store(&subject(&env, |inner| {
            Arc::new(FaultLogStore::new(&env, inner, FaultPlan::scripted()))
        }));
        check_log_store(&subject(&env, |inner| Arc::new(TraceLogStore::new(inner, tracer.clone()))));
        assert!(
            tracer.of_kind(RequestKind::LogAppend).requests > 10
                && tracer.of_kind(RequestKind::LogFence).requests > 0
        );
        tracer.set_on(false);
        check_log_store(&subject(&env, |inner| Arc::new(TraceLogStore::new(inner, tracer.clone()))));
    }
}

#[test]
fn a_log_that_is_slow_keeps_every_promise() {
    for seed in 0..5 {
        let world = World::new(seed);
        let env = world.process("tester").env();
        let plan = FaultPlan::random(
            seed,
            Chances { delay: 0.3, delay_max: Duration::from_millis(2), ..Chances::NONE },
        );
        check_log_store(&subject(&env, |inner| Arc::new(FaultLogStore::new(&env, inner, plan.clone()))));
        assert!(plan.injected() > 0);
    }
}

#[test]
fn an_injected_error_of_an_append_has_no_effect() {
    let env = Env::real();
    let plan = FaultPlan::scripted();
    let subject = subject(&env, |inner| Arc::new(FaultLogStore::new(&env, inner, plan.clone())));
    let history = LogHistory::new(&subject);
    let log = history.open(1, 1).expect("opened");
    let first = log.append(0, &entry(1, 100)).expect("appended").end;
    plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Retry)).times(1));
    assert_eq!(log.append(0, &entry(2, 100)).expect_err("injected").kind(), ErrorKind::Retry);
    let end = log.append(0, &entry(2, 100)).expect("appended").end;
    plan.inject(Rule::of_kind(RequestKind::LogSync, Fault::Error(ErrorKind::Retry)).times(1));
    assert_eq!(log.sync(0, end).expect_err("injected").kind(), ErrorKind::Retry);
    log.sync(0, end).expect("synced");
    plan.set_full(true);
    assert_eq!(log.append(0, &entry(3, 100)).expect_err("full").kind(), ErrorKind::OutOfSpace);
    plan.set_full(false);
    plan.inject(Rule::of_kind(RequestKind::LogFence, Fault::Unknown { landed: true }).times(1));
    assert_eq!(
        history.fence(1, 0, 2, LogOffset::ZERO).expect_err("injected").kind(),
        ErrorKind::OutcomeUnknown
    );
    assert_eq!(log.append(0, &entry(3, 100)).expect_err("it landed").kind(), ErrorKind::Fenced);
    let sealed = history.fence(1, 0, 2, LogOffset::ZERO).expect("fenced again");
    assert_eq!(sealed, end);
    let read = history.read(1, 0, 2, LogOffset::ZERO, sealed).expect("read");
    assert_eq!(read, [(entry(1, 100), first), (entry(2, 100), end)]);
}
