use tombolo_format::block::BlockBuilder;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};

use super::*;
use crate::budget::Category;

pub(super) fn key(number: u64) -> CacheKey {
    CacheKey { table: TableName { epoch: 1, random: number / 100 }, offset: number % 100 * 8192 }
}

/// A block that holds its number, of about `bytes`.
pub(super) fn block(number: u64, bytes: usize) -> Resident {
    let mut builder = BlockBuilder::new();
    let trailer = Trailer::new(SequenceNumber(number), EntryKind::Put);
    builder.add(InternalKey::new(b"key", trailer), &vec![0; bytes]);
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    Resident::Block(Block::new(out.into()).unwrap())
}

fn number(pinned: &Pinned) -> u64 {
    let target = InternalKey::new(b"key", Trailer::FIRST);
    pinned.block().unwrap().get(target).unwrap().unwrap().trailer.sequence().0
}

#[test]
fn what_was_put_in_is_found() {
    let cache = BlockCache::new(1 << 20);
    assert!(cache.get(&key(1)).is_none());
    cache.insert(key(1), block(1, 100));
    assert_eq!(number(&cache.get(&key(1)).unwrap()), 1);
    assert!(cache.get(&key(2)).is_none());
    let again = cache.insert(key(1), block(99, 100));
    assert_eq!(number(&again), 1, "the resident one stays");
    assert_eq!((cache.stats().misses, cache.stats().insertions), (2, 1));
}

#[test]
fn the_budget_is_never_exceeded() {
    for budget in [0, 10_000, 300_000, 5 << 20] {
        let cache = BlockCache::new(budget);
        let slots_bytes = cache.used_bytes();
        for step in 0..5000u64 {
            let bytes = (step * 7919 % 20_000) as usize;
            let pinned = cache.insert(key(step * 31 % 1500), block(step * 31 % 1500, bytes));
            assert_eq!(number(&pinned), step * 31 % 1500);
            assert!(
                cache.used_bytes() <= budget.max(slots_bytes),
                "{} of {budget} after {step}",
                cache.used_bytes()
            );
            assert_eq!(cache.used_bytes(), cache.budget().used(Category::Cache));
            if let Some(pinned) = cache.get(&key(step * 17 % 1500)) {
                assert_eq!(number(&pinned), step * 17 % 1500);
            }
        }
        let stats = cache.stats();
        assert!(budget < 100_000 || stats.used_bytes > budget / 2, "{stats:?}");
        assert!(budget == 0 || stats.evictions > 0);
    }
}

#[test]
fn what_is_larger_than_the_cache_is_handed_back_and_not_kept() {
    let cache = BlockCache::new(100_000);
    cache.insert(key(1), block(1, 10_000));
    assert_eq!(number(&cache.insert(key(2), block(2, 200_000))), 2);
    assert!(cache.get(&key(2)).is_none());
    assert!(cache.get(&key(1)).is_none(), "while it was held, it was charged, and the cache gave way to it");
    assert_eq!(cache.budget().used(Category::Pinned), 0);
}

#[test]
fn what_is_used_stays_while_a_scan_passes() {
    let cache = BlockCache::new(1 << 20);
    for number in 0..20 {
        cache.insert(key(number), block(number, 8000));
    }
    for number in 1000..1600 {
        for hot in 0..20 {
            let _ = cache.get(&key(hot));
        }
        cache.insert(key(number), block(number, 8000));
    }
    let left = (0..20).filter(|number| cache.get(&key(*number)).is_some()).count();
    assert!(left >= 15, "{left} of 20");
}

#[test]
fn the_cache_gives_way_when_others_of_its_budget_grow() {
    let cache = BlockCache::new(1 << 20);
    for number in 0..200 {
        cache.insert(key(number), block(number, 8000));
    }
    let full = cache.used_bytes();
    let memtable = cache.budget().charge(Category::Memtables, 700_000);
    assert!(cache.used_bytes() + 700_000 <= 1 << 20, "{}", cache.used_bytes());
    assert!(cache.budget().used_bytes() <= cache.budget().bytes());
    assert!((0..200).any(|number| cache.get(&key(number)).is_some()), "it gives no more than it must");
    drop(memtable);
    assert!(full > 700_000);
    for number in 0..200 {
        cache.insert(key(number), block(number, 8000));
    }
    assert!(cache.used_bytes() > 700_000, "{}", cache.used_bytes());
}

#[test]
fn an_evicted_entry_lives_as_long_as_it_is_held() {
    let cache = BlockCache::new(100_000);
    let kept = cache.insert(key(1), block(1, 8000)).keep();
    assert_eq!(cache.budget().used(Category::Pinned), 0, "it is the cache's");
    for number in 2..100 {
        cache.insert(key(number), block(number, 8000));
    }
    assert!(cache.get(&key(1)).is_none());
    assert!(kept.block().is_some() && kept.partition().is_none());
    let pinned = cache.budget().used(Category::Pinned);
    assert!(pinned >= 8000, "{pinned}");
    let other = kept.clone();
    drop(kept);
    assert_eq!(cache.budget().used(Category::Pinned), pinned, "once, however many hold it");
    drop(other);
    assert_eq!(cache.budget().used(Category::Pinned), 0);
    let refused = cache.insert(key(2000), block(2000, 200_000)).keep();
    assert!(cache.budget().used(Category::Pinned) >= 200_000, "what the cache refuses is charged as well");
    assert!(cache.used_bytes() < 50_000, "and the cache gives way to it: {}", cache.used_bytes());
    drop(cache);
    drop(refused);
}

#[test]
fn concurrent_readers_and_writers_see_right_blocks() {
    let env = tombolo_env::Env::real();
    let cache = BlockCache::new(2 << 20);
    let tasks: Vec<_> = (0..4u64)
        .map(|task| {
            let cache = Arc::clone(&cache);
            env.spawn(tombolo_env::TaskClass::Foreground, "cache", async move {
                for step in 0..20_000 {
                    let wanted = (step * 7 + task * 13) % 400;
                    let pinned = cache
                        .get(&key(wanted))
                        .unwrap_or_else(|| cache.insert(key(wanted), block(wanted, 8000)));
                    assert_eq!(number(&pinned), wanted);
                }
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(env.block_on(task), Some(()), "a task panicked");
    }
    assert!(cache.used_bytes() <= 2 << 20);
}

#[test]
fn who_shares_a_budget_shares_the_cache() {
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let (one, other) = (BlockCache::of(&budget), BlockCache::of(&budget));
    one.insert(key(1), block(1, 100));
    assert_eq!(number(&other.get(&key(1)).unwrap()), 1);
    drop((one, other));
    assert_eq!(budget.used_bytes(), 0, "a cache that is gone holds nothing");
}

#[test]
fn the_cache_grows_with_its_budget_and_keeps_what_it_holds() {
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let cache = BlockCache::of(&budget);
    for number in 0..100 {
        cache.insert(key(number), block(number, 1000));
    }
    let held: Vec<_> = (0..100).filter(|number| cache.has(&key(*number))).collect();
    let evictions = cache.stats().evictions;
    budget.resize(64 << 20).unwrap();
    assert!(
        held.iter().all(|held| cache.get(&key(*held)).is_some_and(|pinned| number(&pinned) == *held)),
        "nothing is lost"
    );
    assert_eq!(cache.stats().evictions, evictions);
    for number in 0..8000 {
        cache.insert(key(number), block(number, 4000));
    }
    let resident = (0..8000).filter(|number| cache.has(&key(*number))).count();
    assert!(resident > 7900, "{resident} of 8000 blocks of 4 KiB are in a cache of 60 MiB");
    assert_eq!(cache.used_bytes(), budget.used(Category::Cache));
    budget.resize(1 << 20).unwrap();
    assert!(cache.used_bytes() <= 1 << 20, "{}", cache.used_bytes());
    assert!((0..8000).any(|number| cache.has(&key(number))));
    drop(cache);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_cache_that_holds_nothing_takes_next_to_nothing() {
    let cache = BlockCache::new(256 << 20);
    assert!(cache.used_bytes() < 64 << 10, "{}", cache.used_bytes());
    cache.insert(key(1), block(1, 1000));
    assert!(cache.used_bytes() < 68 << 10, "{}", cache.used_bytes());
}

#[test]
fn readers_find_right_blocks_while_the_cache_grows() {
    let env = tombolo_env::Env::real();
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let cache = BlockCache::of(&budget);
    let tasks: Vec<_> = (0..2u64)
        .map(|task| {
            let cache = Arc::clone(&cache);
            env.spawn(tombolo_env::TaskClass::Foreground, "cache", async move {
                for step in 0..20_000 {
                    let wanted = (step * 7 + task * 13) % 400;
                    let pinned = cache
                        .get(&key(wanted))
                        .unwrap_or_else(|| cache.insert(key(wanted), block(wanted, 2000)));
                    assert_eq!(number(&pinned), wanted);
                }
            })
        })
        .collect();
    for shift in 1..7 {
        budget.resize(1 << (20 + shift)).unwrap();
    }
    for task in tasks {
        assert_eq!(env.block_on(task), Some(()), "a task panicked");
    }
    assert_eq!(cache.used_bytes(), budget.used(Category::Cache));
}

/// A data block whose values are aligned.
fn aligned_block(number: u64, bytes: usize, alignment: u32) -> Resident {
    let mut builder = BlockBuilder::with_alignment(alignment);
    builder
        .add(InternalKey::new(b"key", Trailer::new(SequenceNumber(number), EntryKind::Put)), &vec![7; bytes]);
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    Resident::Block(Block::new(out.into()).unwrap())
}

#[test]
fn what_is_used_stays_when_the_cache_gives_way_and_holds_what_it_held() {
    let cache = BlockCache::new(8 << 20);
    for number in 0..700 {
        cache.insert(key(number), block(number, 8000));
    }
    let used = |number: u64| number.is_multiple_of(7);
    for number in (0..700).filter(|number| used(*number)) {
        assert!(cache.get(&key(number)).is_some());
    }
    let memtable = cache.budget().charge(Category::Memtables, 5 << 20);
    assert!(cache.budget().used_bytes() <= cache.budget().bytes());
    let left: Vec<u64> = (0..700).filter(|number| cache.has(&key(*number))).collect();
    for number in &left {
        let pinned = cache.get(&key(*number)).unwrap();
        let block = pinned.block().unwrap();
        assert_eq!(
            block.get(InternalKey::new(b"key", Trailer::FIRST)).unwrap().unwrap().value,
            vec![0; 8000]
        );
        assert_eq!(self::number(&pinned), *number);
    }
    let used_left = left.iter().filter(|number| used(**number)).count();
    assert!(
        left.len() > 250 && used_left >= 90,
        "{} of 700 left, {used_left} of the 100 that were used",
        left.len()
    );
    drop(memtable);
}

#[test]
fn residents_of_other_sizes_take_the_place_of_those_that_were_there() {
    let cache = BlockCache::new(4 << 20);
    for (bytes, length) in [8000, 1000, 20_000, 3000].into_iter().zip([8000, 1000, 20_000, 3000]) {
        for number in 0..6000 {
            cache.insert(key(number + bytes * 10_000), block(number, length));
            assert!(cache.used_bytes() <= 4 << 20, "{}", cache.used_bytes());
        }
        let resident = (0..6000).filter(|number| cache.has(&key(number + bytes * 10_000))).count() as u64;
        assert!(
            resident * bytes > 2 << 20 || resident > 900,
            "{resident} blocks of {bytes} bytes are in a cache of 4 MiB"
        );
    }
}

#[test]
fn memory_that_somebody_holds_is_not_given_to_another() {
    let cache = BlockCache::new(2 << 20);
    let mut held = Vec::new();
    for index in 0..3000 {
        let number = index as u64;
        let kept = cache.insert(key(number), block(number, 1000 + index * 7919 % 9000)).keep();
        if number.is_multiple_of(30) {
            held.push((number, kept));
        }
        if number.is_multiple_of(200) {
            drop(cache.budget().charge(Category::Memtables, 1 << 20));
        }
    }
    for (number, kept) in held {
        assert_eq!(self::number(&kept.pin()), number);
    }
    assert_eq!(cache.budget().used(Category::Pinned), 0);
    drop(cache);
}

#[test]
fn aligned_values_lie_aligned_in_their_frames() {
    let cache = BlockCache::new(8 << 20);
    for (index, alignment) in (0..).zip([1, 8, 64, 512, 4096].into_iter().cycle().take(100)) {
        let bytes = 3000 + index * 50;
        let number = index as u64;
        let pinned = cache.insert(key(number), aligned_block(number, bytes, alignment));
        let block = pinned.block().unwrap();
        let value = block.get(InternalKey::new(b"key", Trailer::FIRST)).unwrap().unwrap().value;
        assert!(
            value.as_ptr().addr().is_multiple_of(alignment as usize) && *value == vec![7; bytes],
            "{bytes} at {alignment}"
        );
    }
}

#[test]
fn what_costs_little_to_miss_puts_others_out_only_when_it_is_missed_again() {
    let cache = BlockCache::new(1 << 20);
    // They are kept: a frame let go of would be free for the next.
    let mut kept = Vec::new();
    let mut is_framed = |number: u64| {
        kept.push(cache.memory_if_worth(key(number), 8000, 1));
        kept.last()
            .is_some_and(|memory| memory.as_ref().is_some_and(|memory| matches!(memory.0, Place::Frame(_))))
    };
    assert!(is_framed(0), "there is room");
    for number in 1000..1200 {
        cache.insert(key(number), block(number, 8000));
    }
    let places = (1..40).filter(|number| is_framed(*number)).count();
    assert!(places < 10, "of a full cache {places} were free");
    assert!(is_framed(39), "missed for the second time");
    let budget = Arc::clone(cache.budget());
    budget.resize(2 << 20).expect("nobody needs more");
    drop((kept, cache));
    assert_eq!(budget.used_bytes(), 0, "all is given back");
}

#[test]
fn a_hint_leads_to_the_entry_wherever_it_went_and_never_to_another() {
    let cache = BlockCache::new(4 << 20);
    let hints: Vec<Hint> = (0..200).map(|_| Hint::default()).collect();
    let find = |number: u64| cache.get_by(&hints[usize::try_from(number).unwrap()], &key(number));
    assert!(find(1).is_none());
    for number in 0..200 {
        cache.insert(key(number), block(number, 4000));
    }
    for _ in 0..2 {
        assert!((0..200).all(|at| number(&find(at).unwrap()) == at));
    }
    let hits = cache.stats().hits;
    // Others take their slots; then they lie elsewhere.
    for number in 1000..5000 {
        cache.insert(key(number), block(number, 4000));
        cache.get(&key(number));
    }
    for at in 0..200 {
        assert!(find(at).is_none_or(|found| number(&found) == at));
        cache.insert(key(at), block(at, 4000));
        assert_eq!(number(&find(at).unwrap()), at);
    }
    // And with more slots.
    cache.budget().resize(64 << 20).unwrap();
    assert!((100..200).all(|at| find(at).is_none_or(|found| number(&found) == at)));
    assert!((0..200).filter(|at| find(*at).is_some()).count() > 100);
    assert!(cache.stats().hits > hits);
    // A hint of another cache.
    let other = BlockCache::new(1 << 20);
    other.insert(key(1), block(1, 100));
    assert!(hints.iter().all(|hint| other.get_by(hint, &key(1)).is_some_and(|found| number(&found) == 1)));
    assert!(hints.iter().all(|hint| other.get_by(hint, &key(2)).is_none()));
}

#[test]
fn threads_that_begin_one_after_the_other_count_hits_on_lines_of_their_own() {
    let hits = Hits::default();
    std::thread::scope(|scope| {
        let count = || (0..1000).for_each(|_| hits.count(|stripe| &stripe.blocks));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let lines = hits.0.iter().filter(|stripe| stripe.blocks.load(Ordering::Relaxed) > 0).count();
    // Other tests begin threads meanwhile.
    assert!(lines >= 6, "8 threads counted on {lines} lines");
    assert!(hits.get() <= 8000);
}

/// A cache full of blocks, and of as many rows as it takes.
fn with_rows() -> Arc<BlockCache> {
    let cache = BlockCache::new(8 << 20);
    (0..1500).for_each(|number| drop(cache.insert(key(number), block(number, 8000))));
    for number in 0..20_000u64 {
        let user_key = number.to_be_bytes();
        let row = RowKey {
            table: TableName { epoch: 1, random: 7 },
            user_key: &user_key,
            hash: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        cache.insert_row(&row, Trailer::new(SequenceNumber(1), EntryKind::Put), &[5; 300]);
    }
    assert!(cache.stats().row_bytes > 1 << 20, "{:?}", cache.stats());
    assert!(cache.used_bytes() <= cache.budget().cache_bytes_max(), "{:?}", cache.stats());
    cache
}

#[test]
fn rows_give_way_as_far_as_their_share_shrinks() {
    let cache = with_rows();
    let room = cache.budget().cache_bytes_max();
    let _others = cache.budget().charge(Category::Memtables, room / 2);
    let stats = cache.stats();
    assert!(stats.row_bytes <= cache.rows.bytes_max() && stats.rows > 0, "{stats:?}");
    assert!(stats.used_bytes <= room - room / 2, "{stats:?}");
}

#[test]
fn rows_give_way_beside_blocks_that_are_held() {
    let cache = with_rows();
    let held: Vec<Kept> = (0..1500).filter_map(|number| cache.get(&key(number)).map(Pinned::keep)).collect();
    assert!(held.len() > 300, "{}", held.len());
    // So much that the held frames would fill the rest.
    let _others = cache.budget().charge(Category::Memtables, cache.budget().cache_bytes_max() / 2);
    let stats = cache.stats();
    assert!(stats.used_bytes <= cache.budget().cache_bytes_max(), "{stats:?}");
}
