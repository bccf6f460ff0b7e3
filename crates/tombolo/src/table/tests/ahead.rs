//! What walks read ahead.

use std::ops::Bound;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::flow::FlowObjectStore;
use tombolo_storage::layer::hedge::HedgeObjectStore;
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};

use super::*;

const KEYS: u64 = 20_000;

fn plain() -> TableOptions {
    TableOptions { compression: Compression::None, ..TableOptions::default() }
}

fn env(fixture: &Fixture) -> Env {
    fixture.world.process("walker").env()
}

/// Walks from where the iterator stands, and checks every entry; `first` is the number of the entry
/// where it must stand.
fn walk(
    fixture: &Fixture,
    iterator: &mut TableIterator,
    entries: &[Owned],
    first: usize,
    count: usize,
    backward: bool,
) -> usize {
    let mut number = first;
    for _ in 0..count {
        assert_eq!(at(iterator), Some((key(&entries[number]), entries[number].2.as_slice())), "at {number}");
        assert!(iterator.block_is_charged(), "at {number}");
        let step = if backward { iterator.prev() } else { iterator.next() };
        done(fixture, iterator, step);
        let next = if backward {
            number.checked_sub(1)
        } else {
            Some(number + 1).filter(|next| *next < entries.len())
        };
        let Some(next) = next else {
            assert!(!iterator.valid());
            break;
        };
        number = next;
    }
    number
}

#[test]
fn walks_both_ways_take_few_requests_and_each_byte_once() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, plain());
    for (backward, background) in [(false, false), (false, true), (true, false), (true, true)] {
        let table = fixture.table(&description, 2 << 20);
        fixture.run(table.open(request())).unwrap();
        fixture.tracer.reset();
        let mut iterator = table.iterator(request(), true);
        if background {
            iterator = iterator.in_background(&env(&fixture));
        }
        let step = if backward { iterator.last() } else { iterator.first() };
        done(&fixture, &mut iterator, step);
        let first = if backward { entries.len() - 1 } else { 0 };
        walk(&fixture, &mut iterator, &entries, first, entries.len(), backward);
        let reads = fixture.tracer.of_kind(RequestKind::Read);
        assert!(reads.requests < 25, "{} requests for {} bytes", reads.requests, description.length);
        assert!(
            reads.bytes < description.length + 300_000,
            "{} bytes of {}",
            reads.bytes,
            description.length
        );
    }
}

#[test]
fn walks_that_turn_and_seek_find_every_entry() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    // Partitions of a few blocks: pieces often end within a block that the next partition knows.
    let description = fixture.write(&entries, TableOptions { partition_bytes: 300, ..plain() });
    let mut random = 0x5eed_u64;
    let mut chance = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((random >> 33) % below).unwrap()
    };
    for (cache, background) in [(0, true), (1 << 20, false), (1 << 20, true), (8 << 20, true)] {
        let table = fixture.table(&description, cache);
        let mut iterator = table.iterator(request(), true);
        if background {
            iterator = iterator.in_background(&env(&fixture));
        }
        for _ in 0..12 {
            let mut number = chance(KEYS);
            let step = iterator.seek(key(&entries[number]));
            done(&fixture, &mut iterator, step);
            for turn in 0..4 {
                let count = chance(3000);
                number = walk(&fixture, &mut iterator, &entries, number, count, turn % 2 == 1);
                if !iterator.valid() {
                    break;
                }
            }
        }
    }
}

/// What an iterator stands on is charged, however it got there: the piece that it was a part of is
/// given back by the next move.
#[test]
fn a_block_outlives_its_piece_and_is_charged_then() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, plain());
    let table = fixture.table(&description, 4 << 20);
    let budget = Arc::clone(table.cache.budget());
    let mut iterator = table.iterator(request(), false);
    let step = iterator.first();
    done(&fixture, &mut iterator, step);
    let number = walk(&fixture, &mut iterator, &entries, 0, 1000, false);
    let (pinned, scans) = (budget.used(Category::Pinned), budget.used(Category::Scans));
    assert!(scans > 0);
    let requests = fixture.tracer.of_kind(RequestKind::Read).requests;
    let step = iterator.seek(key(&entries[number]));
    done(&fixture, &mut iterator, step);
    assert_eq!(
        (budget.used(Category::Scans), fixture.tracer.of_kind(RequestKind::Read).requests),
        (0, requests),
        "it needs no request"
    );
    assert!(
        iterator.block_is_charged() && budget.used(Category::Pinned) > pinned + 3000,
        "{} B",
        budget.used(Category::Pinned) - pinned
    );
    // Past the end it holds no piece either.
    walk(&fixture, &mut iterator, &entries, number, 1000, false);
    let step = iterator.seek(InternalKey::new(b"~", Trailer::new(SequenceNumber(0), EntryKind::Put)));
    done(&fixture, &mut iterator, step);
    assert!(!iterator.valid() && iterator.block_is_charged() && budget.used(Category::Scans) == 0);
}

#[test]
fn nothing_beyond_the_range_is_read_ahead() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, plain());
    let (low, high) = (4_000, 6_000);
    let range = KeyRange {
        lower: Bound::Included(entries[low].0.clone()),
        upper: Bound::Excluded(entries[high].0.clone()),
    };
    let data_bytes = (high - low) as u64 * 125;
    for backward in [false, true] {
        let table = fixture.table(&description, 4 << 20);
        fixture.run(table.open(request())).unwrap();
        fixture.tracer.reset();
        let mut iterator = table
            .iterator(request(), true)
            .in_background(&env(&fixture))
            .within(Some(Arc::new(range.clone())));
        let (from, step) = match backward {
            false => (low, iterator.seek(key(&entries[low]))),
            true => (high - 1, iterator.seek(key(&entries[high - 1]))),
        };
        done(&fixture, &mut iterator, step);
        walk(&fixture, &mut iterator, &entries, from, high - low - 1, backward);
        let read = fixture.tracer.of_kind(RequestKind::Read).bytes;
        assert!(read > data_bytes / 2 && read < data_bytes + 60_000, "{read} bytes for {data_bytes}");
    }
}

#[test]
fn what_is_in_the_cache_is_not_read_again_and_not_driven_out() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, plain());
    let table = fixture.table(&description, 64 << 20);
    let lookup = |number: usize| Lookup::new(&entries[number].0, SequenceNumber(u64::MAX >> 8));
    for number in (0..entries.len()).filter(|number| number / 2_000 % 2 == 1) {
        fixture.run(table.get(request(), &lookup(number))).unwrap();
    }
    fixture.tracer.reset();
    let mut iterator = table.iterator(request(), true).in_background(&env(&fixture));
    let step = iterator.first();
    done(&fixture, &mut iterator, step);
    walk(&fixture, &mut iterator, &entries, 0, entries.len(), false);
    let read = fixture.tracer.of_kind(RequestKind::Read).bytes;
    assert!(read < description.length * 6 / 10, "{read} bytes of {}", description.length);

    // A cache that a scan does not fit: what was in it stays.
    let table = fixture.table(&description, 1 << 20);
    for number in (0..entries.len()).step_by(7) {
        fixture.run(table.get(request(), &lookup(number))).unwrap();
    }
    let before = table.cache.stats();
    let mut iterator = table.iterator(request(), true);
    let step = iterator.first();
    done(&fixture, &mut iterator, step);
    walk(&fixture, &mut iterator, &entries, 0, entries.len(), false);
    let evicted = table.cache.stats().evictions - before.evictions;
    // The pieces themselves take their room from the cache: some of it, once.
    assert!(evicted < 100, "{evicted} entries left for a scan of {} blocks", description.length >> 13);
}

#[test]
fn a_piece_that_fails_or_falls_short_costs_a_request_and_no_answer() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, plain());
    for fault in [Fault::Error(ErrorKind::Retry), Fault::Short(1000)] {
        let plan = FaultPlan::scripted();
        let inner = Arc::clone(&fixture.inner) as Arc<dyn ObjectStore>;
        let store = Arc::new(FaultObjectStore::new(&env(&fixture), inner, plan.clone()));
        let table = Arc::new(Table::new(description.clone(), object(), store, BlockCache::new(8 << 20)));
        fixture.run(table.open(request())).unwrap();
        plan.inject(Rule::new(|asked| asked.kind == RequestKind::Read && asked.number % 3 == 0, fault));
        let mut iterator = table.iterator(request(), true).in_background(&env(&fixture));
        let mut told = 0;
        let mut load = |iterator: &mut TableIterator, step: Result<Step>| {
            if step.unwrap() == Step::Blocked {
                while fixture.run(iterator.load()).is_err() {
                    told += 1;
                }
            }
        };
        let step = iterator.first();
        load(&mut iterator, step);
        for entry in &entries {
            assert_eq!(at(&iterator), Some((key(entry), entry.2.as_slice())));
            let step = iterator.next();
            load(&mut iterator, step);
        }
        assert!(!iterator.valid());
        // What failed in the background is asked for again; what the walk itself asked for is told,
        // and the walk asks for it again.
        assert!(told < plan.injected(), "{told} of {}", plan.injected());
    }
}

/// A table at a store where requests take [`LATENCY`], opened; and the clock of its world.
fn far(fixture: &Fixture, description: &TableDescription, cache_bytes: u64) -> (Env, Arc<Table>) {
    let env = env(fixture);
    let latency = Latency { bytes_per_second: 90_000_000, ..Latency::fixed(LATENCY) };
    let slow = ThrottleObjectStore::new(
        &env,
        Arc::clone(&fixture.store),
        Throttle { latency, ..Throttle::default() },
    );
    let store = FlowObjectStore::new(&env, Arc::new(HedgeObjectStore::new(&env, Arc::new(slow))));
    let table =
        Arc::new(Table::new(description.clone(), object(), Arc::new(store), BlockCache::new(cache_bytes)));
    fixture.run(table.open(request())).unwrap();
    (env, table)
}

const LATENCY: Duration = Duration::from_millis(20);

impl Table {
    /// Puts its partitions out of the cache, into which they came with its tail; how many there
    /// are.
    fn evict_partitions(&self) -> usize {
        let partitions = &self.opened.get().unwrap().top.partitions;
        partitions.iter().for_each(|place| self.cache.evict(&self.key(place.offset)));
        partitions.len()
    }
}

/// The index of blocks that are read ahead comes ahead as well, many partitions at once: else each
/// of them is a latency of its own.
#[test]
fn partitions_of_a_far_table_come_before_the_walk_does() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, TableOptions { partition_bytes: 300, ..plain() });
    for backward in [false, true] {
        let (env, table) = far(&fixture, &description, 64 << 20);
        let partitions = table.evict_partitions();
        assert!(partitions > 15, "{partitions}");
        let began = env.now();
        let mut iterator = table.iterator(request(), true).in_background(&env);
        let step = if backward { iterator.last() } else { iterator.first() };
        done(&fixture, &mut iterator, step);
        let first = if backward { entries.len() - 1 } else { 0 };
        walk(&fixture, &mut iterator, &entries, first, entries.len(), backward);
        let latencies = env.now().since(began).as_secs_f64() / LATENCY.as_secs_f64();
        assert!(latencies < 12.0, "{latencies} latencies for {partitions} partitions");
    }
}

/// A seek that reads beyond its partition, because walks usually go so far, brings the next
/// partition at the same time.
#[test]
fn a_seek_brings_the_index_of_what_it_reads() {
    let fixture = Fixture::new();
    let entries = many(KEYS, 100);
    let description = fixture.write(&entries, TableOptions { partition_bytes: 300, ..plain() });
    let (env, table) = far(&fixture, &description, 64 << 20);
    let walk_from = |number: usize| {
        let began = env.now();
        let mut iterator = table.iterator(request(), true).in_background(&env);
        let step = iterator.seek(key(&entries[number]));
        done(&fixture, &mut iterator, step);
        walk(&fixture, &mut iterator, &entries, number, 1100, false);
        env.now().since(began).as_secs_f64() / LATENCY.as_secs_f64()
    };
    (0..10).for_each(|turn| {
        walk_from(turn * 200);
    });
    table.evict_partitions();
    // As many entries as a partition has blocks for: it goes on in the next.
    let latencies = walk_from(10_000);
    assert!(latencies < 2.4, "{latencies} latencies for a partition, and the blocks with the next one");
}

/// What came into memory while a piece of it was on its way is left behind, and the pieces after it
/// are of use.
#[test]
fn pieces_that_came_in_vain_are_passed() {
    let fixture = Fixture::new();
    let entries = many(8 * KEYS, 100);
    let description = fixture.write(&entries, plain());
    let (env, table) = far(&fixture, &description, 256 << 20);
    fixture.tracer.reset();
    let mut iterator = table.iterator(request(), true).in_background(&env);
    let step = iterator.first();
    done(&fixture, &mut iterator, step);
    let number = walk(&fixture, &mut iterator, &entries, 0, 20_000, false);
    // Another walk brings what lies in the next pieces, and not what lies behind.
    let mut other = table.iterator(request(), true).in_background(&env);
    let step = other.seek(key(&entries[number]));
    done(&fixture, &mut other, step);
    walk(&fixture, &mut other, &entries, number, 8000, false);
    drop(other);
    fixture.run(env.sleep(Duration::from_secs(1)));
    let before = fixture.tracer.of_kind(RequestKind::Read);
    walk(&fixture, &mut iterator, &entries, number, entries.len(), false);
    let reads = fixture.tracer.of_kind(RequestKind::Read);
    let (bytes, rest) = (reads.bytes - before.bytes, (entries.len() - number) as u64 * 125);
    assert!(bytes < rest - (4 << 20), "{bytes} bytes, when {rest} were left and pieces of them had come");
}

/// The walks of a scan share a quarter of memory, beyond the two pieces that each has. (Those of a
/// compaction have few on their way in any case.)
#[test]
fn many_walks_leave_memory_to_the_cache() {
    let fixture = Fixture::new();
    let entries = many(8 * KEYS, 100);
    let description = fixture.write(&entries, plain());
    let (env, table) = far(&fixture, &description, 32 << 20);
    let mut iterators: Vec<_> =
        (0..8).map(|_| table.iterator(request(), false).in_background(&env)).collect();
    let (budget, mut most) = (Arc::clone(table.cache.budget()), 0);
    for (turn, iterator) in iterators.iter_mut().enumerate() {
        let first = turn * 10_000;
        let step = iterator.seek(key(&entries[first]));
        done(&fixture, iterator, step);
        walk(&fixture, iterator, &entries, first, 30_000, false);
        most = most.max(budget.used(Category::Scans));
    }
    assert!(
        most > budget.bytes() / 4 && most < budget.bytes() / 4 + 8 * (2 << 20),
        "{most} of {}",
        budget.bytes()
    );
}

/// What every read needs is no part of the memory that rows and blocks share.
#[test]
fn filters_and_indexes_are_counted_apart() {
    let fixture = Fixture::new();
    let description = fixture.write(&many(KEYS, 100), plain());
    let table =
        Arc::new(Table::new(description, object(), Arc::clone(&fixture.store), BlockCache::new(16 << 20)));
    let budget = Arc::clone(table.cache.budget());
    fixture.run(table.open(request())).unwrap();
    let (index, all) = (budget.cached_index_bytes(), table.cache.used_bytes());
    assert!(index > KEYS && index <= all, "{index} of {all}");
    table.evict_partitions();
    assert_eq!(budget.cached_index_bytes(), 0);
}

/// Rows that look-ups left are found by a multi-get as well.
#[test]
fn a_multi_get_finds_rows() {
    let fixture = Fixture::new();
    let entries = many(2000, 100);
    let description = fixture.write(&entries, plain());
    let (_env, table) = far(&fixture, &description, 16 << 20);
    // Full of something else.
    let others = table.cache.budget().cache_bytes_max() / 10 * 9;
    table.cache.budget().add_cached(others);
    let lookups: Vec<_> =
        [3, 900, 1800].map(|number: usize| Lookup::new(&entries[number].0, SequenceNumber::MAX)).into();
    for lookup in &lookups[..2] {
        assert!(fixture.run(table.get(request(), lookup)).unwrap().is_some());
    }
    let before = table.cache.stats();
    assert_eq!((before.rows, before.row_hits), (2, 0));
    let found = fixture.run(table.get_several(request(), &lookups)).unwrap();
    let values: Vec<_> = found.into_iter().map(|hit| hit.map(|hit| hit.value().to_vec())).collect();
    assert_eq!(values, [3, 900, 1800].map(|number: usize| Some(entries[number].2.clone())));
    let after = table.cache.stats();
    assert_eq!((after.rows, after.row_hits), (3, 2));
    table.cache.budget().subtract_cached(others);
}
