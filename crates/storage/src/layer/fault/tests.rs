use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Env;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::layer::RequestKind;
use crate::{
    Epoch, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome, Request,
    Result,
};

struct Bench {
    env: Env,
    plan: FaultPlan,
    inner: MemoryObjectStore,
    store: FaultObjectStore,
}

fn bench(plan: FaultPlan) -> Bench {
    let env = Env::real();
    let inner = MemoryObjectStore::unnamed(&env);
    Bench { store: FaultObjectStore::new(&env, Arc::new(inner.clone()), plan.clone()), env, plan, inner }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

fn kind_of<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

impl Bench {
    fn put(&self, to: &str, bytes: &'static [u8]) -> Result<PutOutcome> {
        let placement = Placement::new(ObjectKind::Other, Life::Short);
        self.env.block_on(self.store.put_if_absent(
            request(),
            &name(to),
            placement,
            Bytes::from_static(bytes),
        ))
    }

    /// What the store below holds.
    fn below(&self, of: &str) -> Option<Bytes> {
        self.env.block_on(self.inner.read(request(), &name(of), 0..u64::MAX)).ok()
    }

    fn delete(&self, which: &str) -> Result<()> {
        self.env.block_on(self.store.delete(request(), &name(which)))
    }
}

#[test]
fn without_faults_every_promise_is_kept() {
    let bench = bench(FaultPlan::scripted());
    bench
        .env
        .block_on(conformance::object_store(&bench.env, Arc::new(bench.store.clone())))
        .expect("all promises");
    assert!(bench.plan.requests() > 500);
    assert_eq!(bench.plan.injected(), 0);
}

#[test]
fn delays_and_torn_pages_keep_every_promise() {
    let chances =
        Chances { delay: 0.2, torn_list: 1.0, delay_max: Duration::from_micros(50), ..Chances::NONE };
    let bench = bench(FaultPlan::random(7, chances));
    bench
        .env
        .block_on(conformance::object_store(&bench.env, Arc::new(bench.store.clone())))
        .expect("all promises");
    assert!(bench.plan.injected() > 0);
}

/// Lists that walk are worse than those of one moment, and keep their promises.
#[test]
fn lists_that_walk_keep_the_promises_of_such() {
    let chances = Chances { torn_list: 1.0, delay_max: Duration::from_micros(50), ..Chances::NONE };
    let bench = bench(FaultPlan::random(7, chances));
    let check = || bench.env.block_on(conformance::object_store(&bench.env, Arc::new(bench.store.clone())));
    bench.plan.set_lists_walk(true);
    check().expect("all promises but that of one moment");
}

#[test]
fn an_error_has_no_effect() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::Retry)).times(1));
    assert_eq!(kind_of(bench.put("a", b"1")), Some(ErrorKind::Retry));
    assert_eq!(bench.below("a"), None);
    assert_eq!(bench.put("a", b"1").expect("the rule has ended"), PutOutcome::Created);
}

#[test]
fn unknown_outcomes_landed_or_did_not() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::at(1, Fault::Unknown { landed: false }));
    bench.plan.inject(Rule::at(2, Fault::Unknown { landed: true }));
    assert_eq!(kind_of(bench.put("a", b"1")), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(bench.below("a"), None);
    assert_eq!(kind_of(bench.put("a", b"1")), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(bench.below("a").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_late_put_lands_when_it_is_let_go() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::at(1, Fault::Late(Lateness::Released)));
    assert_eq!(kind_of(bench.put("a", b"late")), Some(ErrorKind::OutcomeUnknown));
    assert_eq!((bench.below("a"), bench.plan.held()), (None, 1));
    bench.env.block_on(bench.plan.release());
    assert_eq!(bench.below("a").as_deref(), Some(&b"late"[..]));

    // What another put meanwhile, stays.
    bench.plan.inject(
        Rule::new(
            |asked| asked.name == "b" && asked.kind == RequestKind::Put,
            Fault::Late(Lateness::Released),
        )
        .times(1),
    );
    assert_eq!(kind_of(bench.put("b", b"late")), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(bench.put("b", b"other").expect("free until the late one lands"), PutOutcome::Created);
    bench.env.block_on(bench.plan.release());
    assert_eq!(bench.below("b").as_deref(), Some(&b"other"[..]));
}

#[test]
fn a_duplicated_put_brings_a_deleted_object_back() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::at(1, Fault::Duplicate(Lateness::Released)));
    assert_eq!(bench.put("a", b"twice").expect("once"), PutOutcome::Created);
    bench.delete("a").expect("deleted");
    assert_eq!(bench.below("a"), None);
    bench.env.block_on(bench.plan.release());
    assert_eq!(bench.below("a").as_deref(), Some(&b"twice"[..]));
}

#[test]
fn a_late_delete_takes_what_was_put_meanwhile() {
    let bench = bench(FaultPlan::scripted());
    bench.put("a", b"1").expect("put");
    bench.plan.inject(Rule::of_kind(RequestKind::Delete, Fault::Duplicate(Lateness::Released)).times(1));
    bench.delete("a").expect("deleted");
    assert_eq!(bench.put("a", b"2").expect("put again"), PutOutcome::Created);
    bench.env.block_on(bench.plan.release());
    assert_eq!(bench.below("a"), None);
}

#[test]
fn late_effects_come_after_their_time() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::at(1, Fault::Late(Lateness::After(Duration::from_micros(10)))));
    assert_eq!(kind_of(bench.put("a", b"late")), Some(ErrorKind::OutcomeUnknown));
    bench.env.block_on(async {
        while bench.inner.length(request(), &name("a")).await.is_err() {
            bench.env.sleep(Duration::from_micros(20)).await;
        }
    });
}

#[test]
fn a_short_stream_leaves_nothing_and_a_short_read_is_short() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::of_kind(RequestKind::Append, Fault::Short(2)).skip(1).times(1));
    let outcome = bench.env.block_on(async {
        let target = name("a");
        let mut writer =
            bench.store.create(request(), &target, Placement::new(ObjectKind::Table, Life::Short)).await?;
        writer.append(Bytes::from_static(b"whole")).await?;
        assert_eq!(kind_of(writer.append(Bytes::from_static(b"cut")).await), Some(ErrorKind::Retry));
        assert_eq!(kind_of(writer.append(Bytes::from_static(b"more")).await), Some(ErrorKind::Closed));
        writer.finish().await
    });
    assert_eq!(kind_of(outcome), Some(ErrorKind::Closed));
    assert_eq!(bench.below("a"), None);

    bench.put("b", b"0123456789").expect("put");
    bench.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Short(3)).times(1));
    let read = || bench.env.block_on(bench.store.read(request(), &name("b"), 2..8)).expect("read");
    assert_eq!((&read()[..], &read()[..]), (&b"234"[..], &b"234567"[..]));
}

#[test]
fn a_late_finish_shows_the_object_later() {
    let bench = bench(FaultPlan::scripted());
    bench.plan.inject(Rule::of_kind(RequestKind::Finish, Fault::Late(Lateness::Released)));
    let outcome = bench.env.block_on(async {
        let target = name("a");
        let mut writer =
            bench.store.create(request(), &target, Placement::new(ObjectKind::Table, Life::Short)).await?;
        writer.append(Bytes::from_static(b"bytes")).await?;
        writer.finish().await
    });
    assert_eq!(kind_of(outcome), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(bench.below("a"), None);
    bench.env.block_on(bench.plan.release());
    assert_eq!(bench.below("a").as_deref(), Some(&b"bytes"[..]));
}

#[test]
fn a_full_store_takes_nothing_and_gives_everything() {
    let bench = bench(FaultPlan::scripted());
    bench.put("a", b"1").expect("put");
    bench.plan.set_full(true);
    assert_eq!(kind_of(bench.put("b", b"2")), Some(ErrorKind::OutOfSpace));
    assert_eq!(bench.below("b"), None);
    assert!(bench.env.block_on(bench.store.read(request(), &name("a"), 0..1)).is_ok());
    bench.delete("a").expect("deleting needs no space");
    bench.plan.set_full(false);
    assert!(bench.put("b", b"2").is_ok());
}

#[test]
fn a_torn_page_is_of_two_moments_and_a_list_of_one_is_not() {
    let bench = bench(FaultPlan::scripted());
    for object in ["a", "c"] {
        bench.put(object, b"").expect("put");
    }
    // Between the two moments `a` goes and `d` comes: a page that never was.
    let inner = bench.inner.clone();
    let torn = |earlier_first| Fault::TornList { earlier_first, apart: Duration::from_millis(5) };
    let page = |limit| {
        let (store, env, inner) = (bench.store.clone(), bench.env.clone(), inner.clone());
        bench.env.block_on(async move {
            let before = env.now();
            let change = async {
                inner.delete(request(), &name("a")).await.expect("deleted");
                let placement = Placement::new(ObjectKind::Other, Life::Short);
                inner.put_if_absent(request(), &name("d"), placement, Bytes::new()).await.expect("put");
            };
            let listing = store.list(request(), "", None, limit);
            let mut listing = std::pin::pin!(listing);
            // Poll the list to its first pause, then change the objects.
            let first =
                std::future::poll_fn(|context| std::task::Poll::Ready(listing.as_mut().poll(context))).await;
            if let std::task::Poll::Ready(page) = first {
                return page.expect("listed").objects;
            }
            change.await;
            assert!(env.now() >= before);
            listing.await.expect("listed").objects
        })
    };
    bench.plan.inject(Rule::of_kind(RequestKind::List, torn(true)));
    let shown: Vec<String> = page(10).iter().map(|info| info.name.to_string()).collect();
    assert_eq!(shown, ["a", "c", "d"], "the first from before, the last from after");
    let one: Vec<String> = page(1).iter().map(|info| info.name.to_string()).collect();
    assert_eq!(one, ["c"]);
}

#[test]
fn hooks_run_before_and_after_the_effect() {
    let bench = bench(FaultPlan::scripted());
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let look = |which: &'static str| -> Hook {
        let (seen, inner) = (Arc::clone(&seen), bench.inner.clone());
        Arc::new(move || {
            // A store in memory answers at the first poll, save in a simulation.
            let target = name("a");
            let mut length = inner.length(request(), &target);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let there = matches!(length.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(_)));
            seen.lock().push((which, there));
        })
    };
    bench.plan.inject(Rule::at(1, Fault::Before(look("before"))));
    bench.plan.inject(Rule::at(1, Fault::After(look("after"))));
    bench.put("a", b"1").expect("put");
    assert_eq!(*seen.lock(), [("before", false), ("after", true)]);
}

#[test]
fn the_same_seed_brings_the_same_faults() {
    let history = |seed| {
        let plan =
            FaultPlan::random(seed, Chances { error: 0.2, unknown: 0.2, duplicate: 0.2, ..Chances::NONE });
        let bench = bench(plan);
        (0..200).map(|index| kind_of(bench.put(&format!("n{index}"), b"x"))).collect::<Vec<_>>()
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    assert!(
        history(1).contains(&Some(ErrorKind::Retry)) && history(1).contains(&Some(ErrorKind::OutcomeUnknown))
    );
}
