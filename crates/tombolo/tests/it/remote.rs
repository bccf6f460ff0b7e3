//! Reads from a store where requests take long, in virtual time: how many latencies each takes.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Durability, Env, ErrorKind, Keyspace, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::flow::FlowObjectStore;
use tombolo_storage::layer::hedge::HedgeObjectStore;
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore};

const LATENCY: Duration = Duration::from_millis(20);

/// Keys of the database: the even ones lie below, every odd one in one of the newer tables.
const KEYS: u32 = 30_000;
const RUNS: u32 = 3;

/// A database of several tables in a far store, opened with nothing in memory.
struct Far {
    env: Env,
    plan: FaultPlan,
    tracer: Tracer,
    store: Arc<dyn ObjectStore>,
    keyspace: Keyspace,
    db: Db,
    _world: World,
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    // Nothing that can be compressed.
    let mut state = u64::from(number) + 1;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..400).map(|_| byte()).collect()
}

impl Far {
    fn new(runs: u32) -> Far {
        Far::with_memory(runs, 64 << 20)
    }

    fn with_memory(runs: u32, memory_bytes: u64) -> Far {
        let world = World::new(1);
        let env = world.process("p").env();
        let memory: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let options = |memory_bytes: u64| {
            Options::parse([&format!("memory_bytes={memory_bytes}"), "automatic_compaction=false"]).unwrap()
        };
        let open = |objects: &Arc<dyn ObjectStore>, memory_bytes| {
            Db::builder("mem://far")
                .env(env.clone())
                .stores(Arc::clone(objects), Arc::clone(&log))
                .options(options(memory_bytes))
                .open()
                .wait()
                .unwrap()
        };
        let db = open(&memory, 64 << 20);
        let keyspace = db.default_keyspace();
        for number in (0..KEYS).step_by(2) {
            keyspace.put(key(number), value(number)).wait().unwrap();
        }
        db.compact().wait().unwrap();
        for run in 0..runs {
            for number in (0..KEYS).filter(|number| number % 2 == 1 && number / 2 % runs == run) {
                keyspace.put(key(number), value(number)).wait().unwrap();
            }
            db.flush().wait().unwrap();
        }
        drop(keyspace);
        db.close().wait().unwrap();

        let (plan, tracer) = (FaultPlan::scripted(), Tracer::new(&env));
        let latency = Latency { bytes_per_second: 90_000_000, ..Latency::fixed(LATENCY) };
        let slow =
            Arc::new(ThrottleObjectStore::new(&env, memory, Throttle { latency, ..Throttle::default() }));
        let traced =
            TraceObjectStore::new(Arc::new(FaultObjectStore::new(&env, slow, plan.clone())), tracer.clone());
        let store: Arc<dyn ObjectStore> =
            Arc::new(FlowObjectStore::new(&env, Arc::new(HedgeObjectStore::new(&env, Arc::new(traced)))));
        let db = open(&store, memory_bytes);
        let far = Far { env, plan, tracer, store, keyspace: db.default_keyspace(), db, _world: world };
        far.tracer.reset();
        far
    }

    /// As [`Far::new`], with all tables opened, and the store's latency measured.
    fn warm(runs: u32) -> Far {
        let far = Far::new(runs);
        for number in 0..100 {
            assert!(far.keyspace.get(key(number * 2 + 1000)).wait().unwrap().is_some());
        }
        // What the opening left to be done in the background takes places among the requests in
        // flight.
        far.env.block_on(far.env.sleep(Duration::from_secs(10)));
        far.tracer.reset();
        far
    }

    /// How many latencies something takes.
    fn latencies<T>(&self, what: impl FnOnce(&Keyspace) -> T) -> f64 {
        let began = self.env.now();
        let _done = what(&self.keyspace);
        self.env.now().since(began).as_secs_f64() / LATENCY.as_secs_f64()
    }

    fn reads(&self) -> u64 {
        self.tracer.of_kind(RequestKind::Read).requests
            + self.tracer.of_kind(RequestKind::ReadRanges).requests
    }
}

#[test]
fn a_miss_takes_one_latency_and_the_first_one_two() {
    let far = Far::new(RUNS);
    let took =
        far.latencies(|keyspace| assert_eq!(keyspace.get(key(10)).wait().unwrap().unwrap(), value(10)));
    assert!(took < 2.2, "all tables are opened side by side, then one block: {took}");
    let took = far
        .latencies(|keyspace| assert_eq!(keyspace.get(key(20_000)).wait().unwrap().unwrap(), value(20_000)));
    assert!(took < 1.05, "a block: {took}");
    far.tracer.reset();
    for number in 0..100 {
        assert!(far.keyspace.get([&key(number * 250)[..], b"-absent"].concat()).wait().unwrap().is_none());
    }
    assert!(far.reads() < 12, "filters are in memory: {} requests for what is not there", far.reads());
}

/// Whatever is in flight, it takes one latency.
#[test]
fn misses_side_by_side_take_one_latency_and_share_their_requests() {
    for at_once in [1, 2, 4, 8, 16, 32, 64] {
        // Of one table: no filter passes a key that is not there.
        let far = Far::warm(0);
        let took = far.latencies(|keyspace| {
            let gets: Vec<_> = (0..at_once).map(|number| keyspace.get(key(5000 + number * 200))).collect();
            gets.into_iter().for_each(|get| assert!(get.wait().unwrap().is_some()));
        });
        assert!(
            took < 1.1 && far.reads() == u64::from(at_once),
            "{at_once}: {took}, {} requests",
            far.reads()
        );
    }
    let far = Far::warm(RUNS);
    let gets: Vec<_> = (0..50).map(|_| far.keyspace.get(key(7000))).collect();
    gets.into_iter().for_each(|get| assert!(get.wait().unwrap().is_some()));
    assert_eq!(far.reads(), 1, "fifty readers of one block");
}

/// Keys of all levels come in one round, and near blocks in one request.
#[test]
fn a_multi_get_takes_one_latency_whatever_levels_its_keys_lie_on() {
    let far = Far::warm(RUNS);
    let keys: Vec<_> = (0..12).map(|number| key(5000 + number * 1501)).collect();
    let took = far.latencies(|keyspace| {
        for (number, found) in keyspace.multi_get(&keys).wait().unwrap().into_iter().enumerate() {
            assert_eq!(found.unwrap(), value(5000 + u32::try_from(number).unwrap() * 1501));
        }
    });
    assert!(took < 1.3, "even and odd keys, of four tables: {took}");
    let far = Far::warm(RUNS);
    let keys: Vec<_> = (0..10).map(|number| key(9000 + number * 64)).collect();
    let took = far
        .latencies(|keyspace| assert!(keyspace.multi_get(&keys).wait().unwrap().iter().all(Option::is_some)));
    assert!(took < 1.2 && far.reads() == 1, "neighbours: {took}, {} requests", far.reads());
}

/// A seek brings what the next steps need: one latency for all levels, side by side.
#[test]
fn a_seek_and_ten_steps_take_one_latency() {
    let far = Far::warm(RUNS);
    for start in [4000, 12_345, 20_001] {
        let took = far.latencies(|keyspace| {
            let mut cursor = keyspace.cursor::<&[u8]>(..);
            assert!(cursor.seek(key(start)).unwrap());
            for number in start..start + 10 {
                assert_eq!((cursor.key(), cursor.value()), (&key(number)[..], &value(number)[..]));
                assert!(cursor.next().unwrap());
            }
        });
        assert!(took < 1.2, "{start}: {took}");
    }
}

/// A scan reads ahead as much as moves in a latency or two, so that it is bound by bandwidth.
#[test]
fn a_scan_is_not_bound_by_latency() {
    let far = Far::warm(RUNS);
    let bytes = u64::from(KEYS) * 412;
    let took = far.latencies(|keyspace| assert_eq!(keyspace.scan::<&[u8]>(..).count(), KEYS as usize));
    let moving = bytes as f64 / 90_000_000.0 / LATENCY.as_secs_f64();
    assert!(took < moving + 3.0, "{took} latencies for {bytes} bytes, which take {moving} one after another");
    assert!(far.reads() < 120, "{} requests", far.reads());
}

/// Walks that usually go far are asked for at once; those that do not, are not.
#[test]
fn a_seek_brings_what_walks_usually_come_to() {
    let far = Far::warm(0);
    let walk = |start: u32, entries: u32| {
        far.tracer.reset();
        let mut cursor = far.keyspace.cursor::<&[u8]>(..);
        let took = far.latencies(|_| {
            assert!(cursor.seek(key(start)).unwrap());
            for number in 0..entries {
                assert_eq!(cursor.key(), &key(start + 2 * number)[..]);
                assert!(cursor.next().unwrap());
            }
        });
        // What it asked for in the background is asked for by now.
        far.env.block_on(far.env.sleep(Duration::from_secs(1)));
        (took, far.reads())
    };
    let before = walk(2, 600);
    // A walk's habit in one table goes for all of the level: the database has two.
    for turn in 0..8 {
        walk(22_000 + turn * 100, 600);
    }
    // Its index is known, as that of the first walk was.
    for number in [5800, 7400] {
        assert!(far.keyspace.get(key(number)).wait().unwrap().is_some());
    }
    // 600 entries are a quarter of a megabyte, which moves in a tenth of the latency.
    let (took, reads) = walk(6000, 600);
    assert!(
        took < 1.4 && reads == 1 && before.0 > 1.8,
        "{took} latencies, {reads} requests; before that {before:?}"
    );
    for turn in 0..40 {
        walk(8200 + turn * 200, 3);
    }
    far.tracer.reset();
    walk(17_000, 3);
    let bytes = far.tracer.of_kind(RequestKind::Read).bytes;
    assert!(bytes <= 100_000, "{bytes} bytes for three entries, when nobody goes far any more");
}

/// Blocks that memory holds, here and there, do not cut the read-ahead into small pieces.
#[test]
fn a_scan_reads_over_what_is_in_memory() {
    let far = Far::warm(0);
    for number in (0..KEYS).step_by(160) {
        assert!(far.keyspace.get(key(number)).wait().unwrap().is_some());
    }
    far.tracer.reset();
    let took = far.latencies(|keyspace| assert_eq!(keyspace.scan::<&[u8]>(..).count(), KEYS as usize / 2));
    assert!(far.reads() < 40, "{took} latencies, {} requests", far.reads());
}

/// Several pieces are on their way at once, and the next table is opened and read before the walk
/// comes there: all of it together takes less than its bytes alone would by one connection.
#[test]
fn a_long_scan_has_several_requests_on_their_way() {
    for backward in [false, true] {
        let far = Far::warm(0);
        // What one connection gives is measured with these.
        assert_eq!(far.keyspace.scan::<&[u8]>(..).take(5000).count(), 5000);
        let mut cursor = far.keyspace.cursor::<&[u8]>(..);
        let began = far.env.now();
        let mut number = if backward { KEYS - 2 } else { 10_000 };
        let mut more = if backward { cursor.seek_to_last() } else { cursor.seek(key(number)) }.unwrap();
        let mut entries = 0;
        while more && entries < KEYS / 2 - 5000 {
            assert_eq!((cursor.key(), cursor.value()), (&key(number)[..], &value(number)[..]));
            entries += 1;
            number = if backward { number.wrapping_sub(2) } else { number + 2 };
            more = if backward { cursor.prev() } else { cursor.next() }.unwrap();
        }
        assert_eq!(entries, KEYS / 2 - 5000);
        let took = far.env.now().since(began).as_secs_f64() / LATENCY.as_secs_f64();
        // Three requests in a row to come up to speed, and two for the next table, whose bytes take
        // two more by one connection.
        assert!(took < 8.0, "{took} latencies");
    }
}

/// Walks that turn, seek and end where the next table is on its way find what they would find.
#[test]
fn walks_between_far_tables_turn_and_find_every_entry() {
    let far = Far::warm(0);
    let mut cursor = far.keyspace.cursor::<&[u8]>(..);
    let mut state = 7u64;
    let mut chance = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    for _ in 0..30 {
        let mut number = chance(KEYS / 2) * 2;
        assert!(cursor.seek(key(number)).unwrap());
        for turn in 0..3 {
            for _ in 0..chance(6000) {
                assert_eq!((cursor.key(), cursor.value()), (&key(number)[..], &value(number)[..]));
                let moved = if turn % 2 == 1 { cursor.prev() } else { cursor.next() }.unwrap();
                if !moved {
                    break;
                }
                number = if turn % 2 == 1 { number - 2 } else { number + 2 };
            }
            if !cursor.valid() {
                break;
            }
        }
    }
}

/// What was read ahead and fails is read again, also where another table begins.
#[test]
fn what_fails_ahead_costs_a_request_and_no_entry() {
    let far = Far::warm(0);
    far.plan.inject(Rule::new(
        |asked| asked.kind == RequestKind::Read && asked.number % 2 == 0,
        Fault::Error(ErrorKind::Retry),
    ));
    let mut cursor = far.keyspace.cursor::<&[u8]>(..);
    let mut more = cursor.seek_to_first();
    let mut number = 0;
    let mut told = 0;
    loop {
        match more {
            Err(_) => told += 1,
            Ok(false) => break,
            Ok(true) => {
                assert_eq!(cursor.key(), &key(number)[..]);
                number += 2;
            }
        }
        more = if number == 0 { cursor.seek_to_first() } else { cursor.next() };
    }
    assert_eq!(number, KEYS);
    assert!(far.plan.injected() > 4 && told < far.plan.injected(), "{told} of {}", far.plan.injected());
}

/// Hot keys that lie apart are found in a cache that is much too small for their blocks; each
/// answer is right at each snapshot, whatever was written, flushed and merged since its row was
/// kept.
#[test]
fn rows_are_kept_and_never_wrong() {
    let far = Far::with_memory(1, 4 << 20);
    let mut state = 11u64;
    let mut chance = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    let mut model: Vec<Option<Vec<u8>>> = (0..KEYS).map(|number| Some(value(number))).collect();
    let mut snapshots = Vec::new();
    for step in 0..12_000u32 {
        // Of five reads four are of one key in sixty.
        let number = if chance(5) > 0 { chance(KEYS / 60) * 60 } else { chance(KEYS) };
        match chance(100) {
            0..=2 => {
                let new = format!("new-{step}").into_bytes();
                far.keyspace.put(key(number), &new).wait().unwrap();
                model[number as usize] = Some(new);
            }
            3 => {
                far.keyspace.delete(key(number)).wait().unwrap();
                model[number as usize] = None;
            }
            4..=6 => {
                let numbers: Vec<u32> = (0..10).map(|near| (number + near * 60) % KEYS).collect();
                let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
                let found = far.keyspace.multi_get(&keys).wait().unwrap();
                for (number, found) in numbers.iter().zip(found) {
                    assert_eq!(found.as_deref(), model[*number as usize].as_deref(), "{number} at {step}");
                }
            }
            _ => {
                let found = far.keyspace.get(key(number)).wait().unwrap();
                assert_eq!(found.as_deref(), model[number as usize].as_deref(), "{number} at {step}");
            }
        }
        if step % 1500 == 700 {
            snapshots.push((far.db.snapshot(), model.clone()));
            far.db.flush().wait().unwrap();
        }
        if step % 4000 == 3000 {
            far.db.compact().wait().unwrap();
        }
        if step % 10 == 0
            && let Some((snapshot, then)) = snapshots.last()
        {
            let found = snapshot.get(&far.keyspace, key(number)).wait().unwrap();
            assert_eq!(
                found.as_deref(),
                then[number as usize].as_deref(),
                "{number} at {step}, as of before"
            );
        }
    }
    let hits = far.db.property("cache-row-hits").unwrap().value.number().unwrap();
    assert!(hits > 2000, "{hits} of rows");
}

/// What nobody waits for any more is not asked for any more.
#[test]
fn a_deadline_cancels_the_requests_below() {
    let far = Far::warm(RUNS);
    far.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Delay(Duration::from_secs(3600))));
    let in_flight = || far.store.performance().unwrap().in_flight;
    let until = || far.env.now() + Duration::from_millis(50);
    let error = far.keyspace.get(key(6000)).wait_until(until()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    let keys: Vec<_> = (0..40).map(|number| key(8000 + number * 501)).collect();
    let error = far.keyspace.multi_get(&keys).wait_until(until()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    far.env.block_on(far.env.sleep(Duration::from_millis(1)));
    assert_eq!(in_flight(), 0, "of those that were given up");
    let waiting: Vec<_> = (0..20).map(|number| far.keyspace.get(key(10_000 + number * 300))).collect();
    far.env.block_on(far.env.sleep(Duration::from_millis(1)));
    assert_eq!(in_flight(), 20, "of those that are waited for");
    drop(waiting);
    far.env.block_on(far.env.sleep(Duration::from_millis(1)));
    assert_eq!((in_flight(), far.store.performance().unwrap().waiting), (0, 0));
}

/// Requests and flushes that so many writes of popular keys take, by the database that makes them
/// alone of `databases` that share the memory.
fn popular_writes(is_far: bool, settings: &[&str], databases: usize) -> (u64, u64) {
    const WRITES: u32 = 30_000;
    let world = World::new(1);
    let env = world.process("p").env();
    let latency = Latency { bytes_per_second: 90_000_000, ..Latency::fixed(LATENCY) };
    let throttle = Throttle { latency, ..Throttle::default() };
    let budget = tombolo::MemoryBudget::new(16 << 20).unwrap();
    let open = |number: usize| {
        let memory = MemoryObjectStore::unnamed(&env);
        let slow = Arc::new(ThrottleObjectStore::new(&env, Arc::new(memory), throttle));
        let store: Arc<dyn ObjectStore> =
            if is_far { Arc::new(HedgeObjectStore::new(&env, slow)) } else { slow };
        Db::builder(format!("mem://{number}"))
            .env(env.clone())
            .stores(store, Arc::new(MemoryLogStore::unnamed(&env)))
            .options(Options::parse(settings.iter().copied()).unwrap())
            .memory_budget(&budget)
            .open()
            .wait()
            .unwrap()
    };
    let all: Vec<_> = (0..databases).map(open).collect();
    let db = &all[0];
    let keys = db.default_keyspace();
    let asked = || db.requests().counted.iter().map(|counted| counted.requests).sum::<u64>();
    let before = asked();
    for number in 0..WRITES {
        keys.put_with(key(number * 7919 % 2000), &value(number)[..100], Durability::Accepted).wait().unwrap();
        if number % 20 == 0 {
            env.block_on(env.sleep(Duration::from_millis(2)));
        }
    }
    env.block_on(env.sleep(Duration::from_secs(10)));
    assert!(budget.peak_bytes() <= budget.bytes(), "{budget:?}");
    (asked() - before, db.stats().flushes)
}

#[test]
fn memtables_of_a_far_store_grow_while_few_share_the_memory() {
    let fixed = &["memory_bytes=16777216", "memtable_bytes=1048576"][..];
    let by_itself = &["memory_bytes=16777216"][..];
    let (fixed_requests, fixed_flushes) = popular_writes(true, fixed, 1);
    let (requests, flushes) = popular_writes(true, by_itself, 1);
    println!(
        "{requests} requests and {flushes} flushes, {fixed_requests} and {fixed_flushes} at a sixteenth"
    );
    assert!(flushes * 3 <= fixed_flushes, "{flushes} flushes, {fixed_flushes} at a sixteenth");
    assert!(requests * 2 <= fixed_requests, "{requests} requests, {fixed_requests} at a sixteenth");
    let (_, shared_by_two) = popular_writes(true, by_itself, 2);
    assert!(flushes < shared_by_two && shared_by_two < fixed_flushes, "{shared_by_two} flushes of two");
    // Of four each has what it was promised, and a store of this host is as it was.
    for (is_far, databases) in [(true, 4), (false, 1)] {
        let (requests, flushes) = popular_writes(is_far, by_itself, databases);
        let (fixed_requests, fixed_flushes) = popular_writes(is_far, fixed, databases);
        assert_eq!((requests, flushes), (fixed_requests, fixed_flushes), "far: {is_far}, of {databases}");
    }
}
