//! The promises of a log store, over every object store that is at hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_env::{Env, TaskClass};

use super::harness::{BAD, Case};
use crate::backend::memory::MemoryObjectStore;
use crate::backend::object_log::ObjectLogStore;
use crate::conformance::log::{LogSubject, check_log_store, entry};
use crate::layer::RequestKind;
use crate::layer::fault::Chances;
use crate::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{TraceObjectStore, Tracer};
use crate::log_memory::books::Books;
use crate::{ErrorKind, LogContext, LogStore, ObjectStore, Registry, Uri};

fn subject(env: &Env, objects: Arc<dyn ObjectStore>) -> LogSubject {
    LogSubject {
        env: env.clone(),
        store: Arc::new(ObjectLogStore::new(env, Arc::clone(&objects), true)),
        objects,
    }
}

#[test]
fn in_memory() {
    let env = Env::real();
    check_log_store(&subject(&env, Arc::new(MemoryObjectStore::unnamed(&env))));
}

#[test]
fn in_a_directory() {
    let (env, directory) = (Env::real(), tempfile::tempdir().expect("a temporary directory"));
    let registry = Registry::with_defaults();
    let store = Uri::parse(&format!("file://{}", directory.path().display())).expect("a URI");
    let objects = registry.open_object_store(&env, &store).expect("a store");
    let log = Uri::parse("objects://").expect("a URI");
    let logs = registry.open_log_store(&env, &store, Some(&log), &objects).expect("a log");
    check_log_store(&LogSubject { env, store: logs, objects });
}

#[test]
fn in_simulated_worlds() {
    for seed in 0..4 {
        let world = World::new(seed);
        let env = world.process("tester").env();
        check_log_store(&subject(&env, Arc::new(MemoryObjectStore::unnamed(&env))));
    }
}

/// Whatever the store does wrong within its contract, the log hides it.
#[test]
fn on_a_bad_day() {
    for seed in 0..6 {
        // A few hundred small puts in sequence: late ones come soon, so that the whole stays short.
        let case = Case::new(
            seed,
            Chances { delay_max: Duration::from_millis(5), lateness_max: Duration::from_millis(200), ..BAD },
        );
        let env = case.world.process("tester").env();
        check_log_store(&subject(&env, Arc::clone(&case.objects)));
        assert!(case.plan.injected() > 100);
    }
}

/// Steady state: one put for each group of commits, nothing when idle, no list and no read.
#[test]
fn writes_cost_one_put_each_and_idleness_nothing() {
    let case = Case::new(1, Chances::NONE);
    let process = case.world.process("writer");
    let tracer = Tracer::new(&process.env());
    let case =
        Case { objects: Arc::new(TraceObjectStore::new(Arc::clone(&case.objects), tracer.clone())), ..case };
    process.run(case.clone().write(process.clone(), 30)).expect("nobody ends the writer");
    case.world.run_for(Duration::from_secs(60));
    let told = case.told.lock();
    assert_eq!((told.acknowledged, &told.wrong), (30, &Vec::new()));
    let puts = tracer.of_kind(RequestKind::Put).requests;
    assert!((2..=31).contains(&puts), "{puts} puts of 30 entries");
    assert_eq!(tracer.of_kind(RequestKind::List).requests, 1, "one list at opening looks for garbage");
}

/// Writers who wait for each write share every object, not every other one.
#[test]
fn writers_who_come_again_at_once_share_an_object() {
    const WRITERS: u64 = 16;
    const LATENCY: Duration = Duration::from_millis(20);
    let case = Case::new(2, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let throttle = Throttle { latency: Latency::fixed(LATENCY), ..Throttle::default() };
    let slow = Arc::new(ThrottleObjectStore::new(&env, Arc::clone(&case.objects), throttle));
    let case = Case { objects: slow, ..case };
    let log = process
        .block_on(case.store(&process).with_object_bytes(1 << 20).open(&case.context(&process, 1), 1))
        .expect("opening");
    let written = Arc::new(AtomicU64::new(0));
    for writer in 0..WRITERS {
        let (log, written, env) = (Arc::clone(&log), Arc::clone(&written), env.clone());
        let write = async move {
            for turn in 0.. {
                let accepted = log
                    .append(0, &entry(turn * WRITERS + writer, 100))
                    .expect("appending")
                    .accepted
                    .expect("a ticket");
                if !matches!(accepted.await, Some(Ok(()))) {
                    return;
                }
                written.fetch_add(1, Ordering::Relaxed);
                // As long as a thread takes to be woken.
                env.sleep(Duration::from_micros(10 * writer)).await;
            }
        };
        process.spawn(TaskClass::Foreground, "write", write).detach();
    }
    case.world.run_for(LATENCY * 100);
    let rounds = written.load(Ordering::Relaxed) / WRITERS;
    assert!(rounds >= 85, "{rounds} writes of each in a hundred latencies");
}

#[test]
fn a_uri_that_names_a_place_is_refused() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let store = Uri::parse("mem://refusals").expect("a URI");
    let objects = registry.open_object_store(&env, &store).expect("a store");
    for (uri, said) in
        [("objects://somewhere", "s3://bucket/log"), ("objects://?form=mapped", "takes no parameters")]
    {
        let error = registry
            .open_log_store(&env, &store, Some(&Uri::parse(uri).expect("a URI")), &objects)
            .expect_err(uri);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(said), "{error}");
    }
}

#[test]
fn what_is_on_its_way_is_in_the_books_until_it_is_there() {
    let case = Case::new(3, Chances::NONE);
    let writer = case.world.process("writer");
    let books = Arc::new(Books::default());
    let context = LogContext { memory: Arc::<Books>::clone(&books), ..case.context(&writer, 1) };
    let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
    let mut accepted = Vec::new();
    // Nobody puts what was appended yet.
    let refused = loop {
        match log.append(0, &entry(accepted.len() as u64, 10_000)) {
            Ok(appended) => accepted.push(appended.accepted),
            Err(error) => break error,
        }
        let bytes = accepted.len() * 10_000;
        assert!(
            (bytes..=bytes + bytes / 8 + (64 << 10)).contains(&books.held()),
            "{} bytes held of {bytes}",
            books.held()
        );
    };
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!((90..=105).contains(&accepted.len()), "{} entries of 10 kB fit a MiB", accepted.len());
    case.world.run_until_idle();
    assert_eq!(books.held(), 0, "all of it is in the store");
    let _ = log.append(0, &entry(accepted.len() as u64, 10_000)).expect("room again");
}
