//! One memory budget for several databases.

use std::collections::VecDeque;
use std::process::Command;
use std::time::Duration;

use tombolo::{Db, Durability, Env, ErrorKind, MemoryBudget, MemoryCategory, Options};

fn builder(name: &str, env: &Env) -> tombolo::Builder {
    Db::builder(format!("mem://{name}")).env(env.clone())
}

#[test]
fn databases_share_a_budget_and_its_cache() {
    let env = Env::real();
    let budget = MemoryBudget::new(8 << 20).unwrap();
    let mut databases = Vec::new();
    for number in 0..3 {
        let db = builder(&format!("shared-{number}"), &env).memory_budget(&budget).open().wait().unwrap();
        let keys = db.default_keyspace();
        for key in 0..2000u32 {
            keys.put_with(key.to_be_bytes(), [number; 100], Durability::Unlogged).wait().unwrap();
        }
        db.flush().wait().unwrap();
        databases.push(db);
    }
    for (number, db) in (0u8..).zip(&databases) {
        for key in 0..2000u32 {
            assert_eq!(db.default_keyspace().get(key.to_be_bytes()).wait().unwrap().unwrap(), [number; 100]);
        }
        assert_eq!(db.memory().members(), 3);
    }
    assert!(budget.used(MemoryCategory::Cache) > 400_000, "{budget:?}");
    assert!(budget.peak_bytes() <= budget.bytes(), "{budget:?}");
    drop(databases);
}

#[test]
fn a_budget_too_small_for_all_is_a_clear_error() {
    let env = Env::real();
    let budget = MemoryBudget::new(2 << 20).unwrap();
    let options = Options { memtable_bytes: Some(256 << 10), ..Options::default() };
    let open = |name: &str| builder(name, &env).options(options.clone()).memory_budget(&budget).open().wait();
    let first = open("small-1").unwrap();
    let second = open("small-2").unwrap();
    let refused = open("small-3").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("memory budget"), "{refused}");
    first.close().wait().unwrap();
    drop(first);
    open("small-3").unwrap();
    drop(second);
    assert_eq!(MemoryBudget::new(1000).unwrap_err().kind(), ErrorKind::Invalid);
}

/// What two databases take beside their budget: threads, rings and pools of buffers, which do not
/// grow with data.
const BESIDE_BYTES: usize = 4 << 20;

/// Tells the test's process that it is alone.
const ALONE: &str = "TOMBOLO_TEST_ALONE";

/// Runs a test in a process of its own, for which all that is allocated is counted.
fn run_alone(test: &str, says: &str) {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains(says),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_workload_of_two_databases_stays_within_their_budget() {
    run_alone("memory::bounded_workload", "in the budget's books");
}

#[test]
fn ten_thousand_keyspaces_cost_little_each() {
    run_alone("memory::many_keyspaces", "bytes for each keyspace");
}

/// What each of many keyspaces that hold nothing may take: of a million 1,193 bytes were measured.
const KEYSPACE_BYTES_MAX: usize = 1536;

#[test]
fn as_many_keyspaces_as_one_likes_are_created_and_dropped_in_one_go() {
    run_alone("memory::keyspaces_in_one_go", "bytes for each keyspace");
}

#[test]
fn what_is_lent_from_memory_allocates_nothing() {
    run_alone("memory::lent_values", "bytes allocated by gets that lend");
}

/// The work of the test above, in its process: values in a memtable, and in blocks that are cached.
#[test]
fn lent_values() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let db = builder("lent", &Env::real()).open().wait().unwrap();
    let keys = db.default_keyspace();
    for key in 0..2000u32 {
        keys.put(key.to_be_bytes(), [7; 100]).wait().unwrap();
        if key == 1000 {
            db.flush().wait().unwrap();
        }
    }
    let sum = || {
        let lent = (0..2000u32).map(|key| keys.get_with(key.to_be_bytes(), <[u8]>::len).wait().unwrap());
        lent.map(|length| length.unwrap()).sum::<usize>()
    };
    // From here on all is in memory.
    assert_eq!(sum(), 200_000);
    let before = crate::allocator::total();
    for _ in 0..20 {
        assert_eq!(sum(), 200_000);
    }
    let bytes = crate::allocator::total() - before;
    println!("{bytes} bytes allocated by gets that lend");
    // Of 40,000 gets; something in the background may take a little.
    assert!(bytes < 40_000, "{bytes} bytes");
}

/// The work of the test above, in its process: more than the memtables that may wait for their
/// flush can take, all begun before the first is waited for. `cargo xtask campaign keyspaces` does
/// it with a million, by the variable `KEYSPACES`.
#[test]
fn keyspaces_in_one_go() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let count = std::env::var("KEYSPACES")
        .ok()
        .map_or(if crate::is_deep() { 100_000 } else { 40_000 }, |count| count.parse().unwrap());
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || builder("one-go", &env).registry(registry.clone()).open().wait().unwrap();
    let db = open();
    let name = |number: usize| format!("keyspace-{number:07}");
    let before = crate::allocator::begin();
    let begun: Vec<_> = (0..count)
        .map(|number| db.create_keyspace(&name(number), tombolo::KeyspaceOptions::default()))
        .collect();
    for (number, created) in begun.into_iter().enumerate() {
        assert_eq!(created.wait().unwrap().name(), name(number));
    }
    let peak = (crate::allocator::peak() - before) / count;
    db.flush().wait().unwrap();
    // A snapshot of the manifest may be on its way, which takes memory until it is there.
    let each = || (crate::allocator::live() - before) / count;
    for _ in 0..1000 {
        if each() <= KEYSPACE_BYTES_MAX {
            break;
        }
        env.block_on(env.sleep(Duration::from_millis(10)));
    }
    println!("{} bytes for each keyspace, {peak} at most while they were created", each());
    assert!(each() <= KEYSPACE_BYTES_MAX, "{} bytes for each idle keyspace", each());
    assert!(peak <= 4096, "{peak} bytes for each while they were created");
    drop(db);
    let db = open();
    assert_eq!(db.keyspaces().len(), count + 1);
    let begun: Vec<_> = (0..count).map(|number| db.drop_keyspace(&name(number))).collect();
    begun.into_iter().for_each(|dropped| dropped.wait().unwrap());
    assert_eq!(db.keyspaces().len(), 1);
    drop(db);
    assert_eq!(open().keyspaces().len(), 1);
}

/// The work of the test above, in its process.
#[test]
fn many_keyspaces() {
    const COUNT: usize = 10_000;
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || builder("many-keyspaces", &env).registry(registry.clone()).open().wait().unwrap();
    let db = open();
    let name = |number: usize| format!("keyspace-{number:06}");
    let (before, total) = (crate::allocator::begin(), crate::allocator::total());
    for number in 0..COUNT {
        drop(db.create_keyspace(&name(number), tombolo::KeyspaceOptions::default()).wait().unwrap());
    }
    db.flush().wait().unwrap();
    // A snapshot of the manifest may be on its way, which takes memory until it is there.
    let each = || (crate::allocator::live() - before) / COUNT;
    for _ in 0..1000 {
        if each() < 2048 {
            break;
        }
        env.block_on(env.sleep(Duration::from_millis(10)));
    }
    let (each, all) = (each(), crate::allocator::total() - total);
    println!("{each} bytes for each keyspace, {all} allocated on the way");
    assert!(each < 2048, "{each} bytes for each idle keyspace");
    // A map copied for each would come to a gigabyte.
    assert!(all < COUNT * 20_000, "{all} bytes were allocated to create {COUNT}");
    drop(db);
    // They are there again, take writes, and those dropped are gone.
    let db = open();
    assert_eq!(db.keyspaces().len(), COUNT + 1);
    for number in (0..COUNT).step_by(4) {
        let keyspace = db.keyspace(&name(number)).unwrap();
        keyspace.put_with(b"key", number.to_be_bytes(), Durability::Accepted).wait().unwrap();
        if number % 8 == 0 {
            drop(db.drop_keyspace(&name(number)));
        }
    }
    db.flush().wait().unwrap();
    let check = |db: &Db| {
        assert_eq!(db.keyspaces().len(), COUNT + 1 - COUNT / 8);
        for number in (4..COUNT).step_by(8) {
            let value = db.keyspace(&name(number)).unwrap().get(b"key").wait().unwrap();
            assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]), "{number}");
        }
        assert_eq!(db.keyspace(&name(0)).unwrap_err().kind(), ErrorKind::NotFound);
    };
    check(&db);
    drop(db);
    check(&open());
}

/// The work of the test above, in its process.
#[test]
fn bounded_workload() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let env = Env::real();
    let before = crate::allocator::begin();
    let budget = MemoryBudget::new(8 << 20).unwrap();
    let options = Options { memtable_bytes: Some(512 << 10), ..Options::default() };
    let open = |name: &str| {
        let place = format!("file://{}/{name}", directory.path().display());
        Db::builder(place)
            .env(env.clone())
            .options(options.clone())
            .memory_budget(&budget)
            .open()
            .wait()
            .unwrap()
    };
    let databases = [open("one"), open("two")];
    let mut held = VecDeque::new();
    let mut chance = 7u64;
    for step in 0..6000u64 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let keys = databases[step as usize % 2].default_keyspace();
        let key = (chance >> 33) % 3000;
        // Bytes that do not compress, some large enough to share their block.
        let value: Vec<u8> = (0..if key.is_multiple_of(4) { 6000 } else { 900 })
            .map(|at: u64| ((chance ^ at).wrapping_mul(chance) >> 29) as u8)
            .collect();
        keys.put_with(key.to_be_bytes(), &value, Durability::Unlogged).wait().unwrap();
        if let Some(value) = keys.get(((chance >> 20) % 3000).to_be_bytes()).wait().unwrap() {
            held.push_back(value);
        }
        if held.len() > 200 {
            held.pop_front();
        }
        if step % 1000 == 999 {
            assert!(keys.scan::<&[u8]>(..).map(Result::unwrap).count() > 100);
        }
    }
    let (peak, used) = (crate::allocator::peak() - before, budget.peak_bytes());
    println!("{peak} bytes at most, {used} of them in the budget's books");
    assert!(budget.used(MemoryCategory::Pinned) + budget.used(MemoryCategory::Cache) > 0, "{budget:?}");
    assert!(used <= budget.bytes() + budget.bytes() / 16, "{used} charged of {}", budget.bytes());
    assert!(peak <= budget.bytes() as usize + BESIDE_BYTES, "{peak} bytes allocated, {used} charged");
}
