#![allow(clippy::cast_possible_truncation, reason = "of numbers that a test chooses")]

use std::collections::BTreeMap;
use std::io::ErrorKind as Io;

use proptest::prelude::*;
use tombolo_env::simulated::{Crash, OperationKind, Process, World};
use tombolo_format::compression::{Compression, Compressor};
use tombolo_format::manifest::TableName;
use tombolo_format::stored;

use super::*;

const REGION_BYTES: u64 = 4 << 10;
const BYTES: u64 = 8 * REGION_BYTES;
const IDENTITY: u64 = 77;

fn key(number: u64) -> FlashKey {
    FlashKey {
        table: TableName { epoch: 1, random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) },
        offset: number << 12,
    }
}

/// A stored block, as a table has it: of some hundred bytes that differ from key to key.
fn piece(number: u64) -> Bytes {
    let raw: Vec<u8> = (0..200 + number % 100).map(|at| (number * 31 + at * at) as u8).collect();
    let mut out = Vec::new();
    stored::seal(&mut Compressor::new(), Compression::None, &raw, IDENTITY, key(number).offset, &mut out);
    out.into()
}

fn options(bytes: u64) -> FlashCacheOptions {
    FlashCacheOptions { bytes_per_second_max: Some(1 << 30), ..FlashCacheOptions::new("/flash", bytes) }
}

fn open(env: &Env) -> Result<Arc<FlashCache>> {
    FlashCache::open_with(env, options(BYTES), &MemoryBudget::new(4 << 20)?, REGION_BYTES)
}

/// What a reader makes of the cache: a piece that passes its checks, or nothing.
async fn get(cache: &FlashCache, number: u64) -> Option<Bytes> {
    let found = cache.get(key(number), piece(number).len() as u64).await?;
    match stored::open(&found, IDENTITY, key(number).offset) {
        Ok(_) => {
            assert_eq!(found, piece(number), "a wrong piece passed its checks");
            Some(found)
        }
        Err(error) => {
            cache.forget_damaged(key(number), &Error::format("piece", 0, error));
            None
        }
    }
}

async fn found(cache: &FlashCache, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut found = Vec::new();
    for number in numbers {
        if get(cache, number).await.is_some() {
            found.push(number);
        }
    }
    found
}

async fn admit(cache: &FlashCache, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        cache.admit(key(number), &piece(number));
        cache.settled().await;
    }
}

/// The regions' files with their lengths.
fn regions(world: &World) -> Vec<(PathBuf, u64)> {
    world
        .host(0)
        .all_files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "region"))
        .collect()
}

/// Runs `work` as a process that must come to its end.
fn run<T: Send + 'static>(world: &World, work: impl FnOnce(Env) -> tombolo_env::BoxFuture<'static, T>) -> T {
    let process = world.process("test");
    process.run(work(process.env())).expect("nothing ends the process")
}

#[test]
fn what_enters_is_found_until_its_region_goes() {
    let world = World::new(1);
    run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            admit(&cache, 0..10).await;
            assert_eq!(found(&cache, 0..12).await, (0..10).collect::<Vec<_>>());
            admit(&cache, 10..400).await;
            let left = found(&cache, 0..400).await;
            // A region has about 13 pieces, and there are 8 of them.
            assert!((60..=110).contains(&left.len()) && left.contains(&399), "{left:?}");
            let stats = cache.stats();
            assert_eq!((stats.insertions, stats.damaged, stats.errors), (400, 0, 0));
            assert!(stats.bytes <= BYTES && stats.pieces == left.len() as u64, "{stats:?}");
        })
    });
    let files = regions(&world);
    assert!(
        files.iter().map(|(_, bytes)| bytes).sum::<u64>() <= BYTES
            && files.iter().all(|(_, bytes)| *bytes <= REGION_BYTES),
        "{files:?}"
    );
}

#[test]
fn what_is_read_stays_while_others_go() {
    let world = World::new(2);
    run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            // Half a region: more is not kept of one.
            admit(&cache, 0..6).await;
            for round in 0..10u64 {
                assert_eq!(found(&cache, 0..6).await.len(), 6, "round {round}");
                admit(&cache, 1000 + round * 60..1060 + round * 60).await;
            }
            let stats = cache.stats();
            assert!(stats.kept_bytes > 0 && stats.kept_bytes < stats.written_bytes / 3, "{stats:?}");
        })
    });
}

#[test]
fn pieces_that_share_a_fingerprint_are_told_apart() {
    let world = World::new(3);
    run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            let one = FlashKey { table: TableName { epoch: 0, random: 5 }, offset: 0 };
            let other =
                FlashKey { table: TableName { epoch: 0, random: 5 ^ 8u64.rotate_left(17) }, offset: 8 };
            assert_eq!(fingerprint(one), fingerprint(other));
            cache.admit(one, b"a piece");
            cache.settled().await;
            assert_eq!(cache.get(other, 7).await, None);
            assert_eq!(cache.get(one, 7).await.as_deref(), Some(&b"a piece"[..]));
            assert_eq!((cache.stats().hits, cache.stats().misses, cache.stats().damaged), (1, 1, 0));
        })
    });
}

/// The regions left for the next process, which knows nothing: found by the index of its regions,
/// or by a walk.
fn restart(close: bool) {
    let world = World::new(4);
    let before = run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            admit(&cache, 0..60).await;
            let found = found(&cache, 0..60).await;
            if close {
                cache.close();
                assert_eq!(cache.stats().trouble, "closed");
                assert_eq!(get(&cache, 59).await, None);
            }
            found
        })
    });
    let bytes: u64 = regions(&world).iter().map(|(_, bytes)| bytes).sum();
    run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            assert_eq!(found(&cache, 0..60).await, before);
            let stats = cache.stats();
            assert_eq!((stats.pieces, stats.damaged, stats.errors), (before.len() as u64, 0, 0));
            if close {
                assert_eq!(stats.bytes, bytes);
            }
            // It goes on behind the existing regions.
            admit(&cache, 100..110).await;
            assert_eq!(found(&cache, 100..110).await.len(), 10);
        })
    });
}

#[test]
fn a_restart_finds_what_was_there() {
    restart(true);
    restart(false);
}

async fn fill(env: Env) {
    // The process may end here.
    let Ok(cache) = open(&env) else { return };
    cache.settled().await;
    for round in 0..3 {
        admit(&cache, round * 40..round * 40 + 40).await;
        found(&cache, round * 40..round * 40 + 5).await;
    }
    cache.close();
}

/// Whatever survives, a read finds the right bytes or none, the files stay within their bound, and
/// the cache is of use again.
fn check_after_crash(world: &World, at: u64) {
    let left = run(world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            let left = found(&cache, 0..120).await;
            admit(&cache, 500..510).await;
            assert_eq!(found(&cache, 500..510).await.len(), 10);
            assert!(cache.stats().bytes <= BYTES);
            left.len()
        })
    });
    let bytes: u64 = regions(world).iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes <= BYTES, "{bytes} bytes after a crash at {at}, {left} pieces");
}

#[test]
fn a_process_killed_at_any_operation_leaves_nothing_wrong() {
    let world = World::new(5);
    let process = world.process("fills");
    process.run(fill(process.env())).unwrap();
    let operations = process.operations();
    assert!(operations > 100);
    for number in (1..=operations).step_by(3) {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let world = World::new(number);
            let process = world.process("fills");
            process.crash_at(number, crash);
            let _ended = process.run(fill(process.env()));
            check_after_crash(&world, number);
        }
    }
}

#[test]
fn no_damaged_byte_gives_a_wrong_piece() {
    let world = World::new(6);
    let before = run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            admit(&cache, 0..24).await;
            let found = found(&cache, 0..24).await;
            cache.close();
            found.len()
        })
    });
    let image = world.host(0).disk_image();
    let (path, bytes) = regions(&world).remove(0);
    let mut pieces_lost = BTreeMap::new();
    for at in 0..bytes {
        let world = World::new(at);
        world.host(0).set_disk(&image);
        world.host(0).flip_bit(&path, at, (at % 8) as u8).unwrap();
        let (left, stats) = run(&world, |env| {
            Box::pin(async move {
                let cache = open(&env).unwrap();
                cache.settled().await;
                (found(&cache, 0..24).await.len(), cache.stats())
            })
        });
        *pieces_lost.entry(before - left).or_insert(0) += 1;
        assert!(stats.damaged <= 1 && stats.hits + stats.misses == 24, "byte {at}: {stats:?}");
    }
    // A byte of a piece costs that piece, one of the header the region, one of the index or footer
    // nothing.
    assert!(pieces_lost[&1] > 3000 && pieces_lost[&0] > 400 && pieces_lost.len() == 3, "{pieces_lost:?}");
}

#[test]
fn a_full_disk_stops_it_for_a_minute_and_it_goes_on_with_what_there_is() {
    let world = World::new(7);
    world.host(0).set_capacity(Some(3 * REGION_BYTES));
    let host = world.clone();
    let process = world.process("test");
    let env = process.env();
    process.env().block_on(async move {
        let cache = open(&env).unwrap();
        cache.settled().await;
        admit(&cache, 0..60).await;
        let stats = cache.stats();
        assert!(
            stats.errors == 1 && stats.trouble.contains("writing") && stats.dropped_by_room > 10,
            "{stats:?}"
        );
        assert!(!found(&cache, 0..60).await.is_empty(), "what is there is read still");
        env.sleep(REST).await;
        admit(&cache, 60..90).await;
        let stats = cache.stats();
        assert_eq!((stats.errors, stats.trouble.as_str()), (1, ""), "a region makes way: {stats:?}");
        assert!(found(&cache, 60..90).await.len() > 10);
        drop(host);
    });
}

#[test]
fn reads_that_fail_are_misses_and_after_some_of_them_it_rests() {
    let world = World::new(8);
    let process = world.process("test");
    let env = process.env();
    let process = &process;
    process.env().block_on(async move {
        let cache = open(&env).unwrap();
        cache.settled().await;
        admit(&cache, 0..30).await;
        process.fail_next(OperationKind::Read, Io::Other, u64::from(READ_ERRORS_MAX));
        assert!(found(&cache, 0..8).await.is_empty());
        let stats = cache.stats();
        assert!(stats.errors == u64::from(READ_ERRORS_MAX) && stats.trouble.contains("reading"), "{stats:?}");
        assert!(found(&cache, 8..20).await.is_empty(), "nothing is asked of it");
        env.sleep(REST).await;
        assert_eq!(found(&cache, 8..20).await.len(), 12);
        assert_eq!(cache.stats().trouble, "");
    });
}

#[test]
fn a_directory_is_used_by_one_at_a_time_and_by_nobody_when_others_files_are_in_it() {
    let world = World::new(9);
    let (one, other) = (world.process("one"), world.process("other"));
    let first = open(&one.env()).unwrap();
    assert_eq!(open(&other.env()).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(open(&one.env()).unwrap_err().kind(), ErrorKind::Busy);
    drop(first);
    let second = open(&other.env()).unwrap();
    second.close();
    one.files().create_new(Path::new("/flash/letter")).unwrap();
    let error = open(&one.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("letter"), "{error}");
    assert!(one.files().metadata(Path::new("/flash/letter")).is_ok());
    for name in ["0000000000000001.region", "00000000000000ff.region"] {
        assert!(writer::region_number(name).is_some());
    }
    for name in [
        "1.region",
        "000000000000000g.region",
        "+000000000000001.region",
        "0000000000000001",
        "0000000000000001.region.old",
    ] {
        assert_eq!(writer::region_number(name), None, "{name}");
    }
}

#[test]
fn the_rate_bounds_what_is_written_once_it_is_full() {
    let world = World::new(10);
    run(&world, |env| {
        Box::pin(async move {
            let options = FlashCacheOptions { bytes_per_second_max: Some(1000), ..options(BYTES) };
            let cache =
                FlashCache::open_with(&env, options, &MemoryBudget::new(4 << 20).unwrap(), REGION_BYTES)
                    .unwrap();
            cache.settled().await;
            admit(&cache, 0..1000).await;
            let stats = cache.stats();
            assert!(stats.written_bytes <= BYTES + BYTES / 2 && stats.dropped_by_rate > 800, "{stats:?}");
            env.sleep(Duration::from_secs(10)).await;
            admit(&cache, 1000..1100).await;
            let more = cache.stats().written_bytes - stats.written_bytes;
            assert!((8_000..=14_000).contains(&more), "{more} bytes in ten seconds");
        })
    });
}

#[test]
fn what_a_user_misses_twice_enters_and_what_others_read_does_not() {
    let world = World::new(11);
    run(&world, |env| {
        Box::pin(async move {
            let cache = open(&env).unwrap();
            cache.settled().await;
            let offer = |purpose, number| cache.offer(purpose, key(number), &piece(number));
            for (number, purpose) in
                [Purpose::Compaction, Purpose::Verify, Purpose::Flush].into_iter().enumerate()
            {
                (0..3).for_each(|_| offer(purpose, number as u64));
                cache.offer_tail(purpose, key(number as u64), &piece(number as u64));
            }
            // One look at everything, and the second look at a few.
            (10..40).for_each(|number| offer(Purpose::Get, number));
            (20..25).for_each(|number| offer(Purpose::Scan, number));
            cache.offer_tail(Purpose::Get, key(50), &piece(50));
            cache.settled().await;
            assert_eq!(found(&cache, 0..60).await, [20, 21, 22, 23, 24, 50]);
        })
    });
}

#[test]
fn memory_bounds_what_it_knows() {
    let world = World::new(12);
    run(&world, |env| {
        Box::pin(async move {
            // An eighth of it is 128 KiB: about 6500 pieces.
            let budget = MemoryBudget::new(1 << 20).unwrap();
            let cache = FlashCache::open_with(&env, options(64 << 20), &budget, 256 << 10).unwrap();
            cache.settled().await;
            for number in 0..20_000u64 {
                cache.admit(key(number), b"a small piece");
                if number % 100 == 0 {
                    cache.settled().await;
                }
            }
            cache.settled().await;
            let stats = cache.stats();
            assert!((3000..9000).contains(&stats.pieces), "{stats:?}");
            assert!(
                budget.used(Category::Flash) <= budget.bytes() / 2,
                "{} bytes",
                budget.used(Category::Flash)
            );
            assert!(
                cache.get(key(19_999), 13).await.is_some(),
                "the newest enter, and the oldest make way: {stats:?}"
            );
            drop(cache);
        })
    });
}

#[derive(Clone, Debug)]
enum Do {
    Admit(u64),
    Get(u64),
    Close,
    Drop,
    PowerLoss,
}

fn steps() -> impl Strategy<Value = Vec<Do>> {
    let one = prop_oneof![
        12 => (0..300u64).prop_map(Do::Admit),
        12 => (0..300u64).prop_map(Do::Get),
        1 => Just(Do::Close),
        1 => Just(Do::Drop),
        1 => Just(Do::PowerLoss),
    ];
    proptest::collection::vec(one, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A hit is the piece that was put, and nothing else is found.
    #[test]
    fn it_answers_as_a_map_that_forgets(seed in 0..1000u64, steps in steps()) {
        let world = World::new(seed);
        let (mut put, mut at) = (std::collections::BTreeSet::new(), 0);
        while at < steps.len() {
            let process: Process = world.process("test");
            let env = process.env();
            process.env().block_on(async {
                let cache = open(&env).unwrap();
                cache.settled().await;
                while at < steps.len() {
                    at += 1;
                    match steps[at - 1] {
                        Do::Admit(number) => {
                            cache.admit(key(number), &piece(number));
                            put.insert(number);
                        }
                        // `get` compares a hit with the piece that was put.
                        Do::Get(number) => assert!(
                            get(&cache, number).await.is_none() || put.contains(&number)
                        ),
                        Do::Close => return cache.close(),
                        Do::Drop => return,
                        Do::PowerLoss => return world.host(0).power_loss(),
                    }
                }
            });
            process.kill();
            let bytes: u64 = regions(&world).iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(bytes <= BYTES, "{bytes} bytes of files");
        }
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::notices;

    use super::*;

    #[test]
    fn rules_taken_out_are_noticed() {
        notices(Mutant::FlashIgnoresKey, pieces_that_share_a_fingerprint_are_told_apart);
        notices(Mutant::FlashIgnoresRate, the_rate_bounds_what_is_written_once_it_is_full);
        notices(Mutant::FlashTakesFirstMiss, what_a_user_misses_twice_enters_and_what_others_read_does_not);
        notices(Mutant::FlashForgetsUsed, what_is_read_stays_while_others_go);
    }
}
