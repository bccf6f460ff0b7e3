//! Histories of transactions of several tasks and threads, judged by what their isolation forbids.
//!
//! In a simulated world, by seed: the writer flushes, compacts, and is taken over while
//! transactions are open; what a mutant takes out is found by some seed. And with real threads.

mod checker;
mod registers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checker::{Done, End, Level, Step, check};
use parking_lot::Mutex;
use tombolo::{
    Db, Env, ErrorKind, Isolation, Keyspace, KeyspaceOptions, Locking, OperatorName, Options, Result,
    TakeOver, Transaction, TransactionOptions,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

const KEYS: u64 = 5;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What tasks and threads of one run share.
#[derive(Default)]
struct Shared {
    history: Mutex<Vec<Done>>,
    of_registers: Mutex<Vec<registers::Done>>,
    moment: AtomicU64,
    numbers: AtomicU64,
}

impl Shared {
    fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }
}

fn list_of(bytes: Option<&[u8]>) -> Vec<u32> {
    let numbers = bytes.unwrap_or_default().chunks(4);
    numbers.map(|number| u32::from_le_bytes(number.try_into().unwrap())).collect()
}

/// Reads a key in one of the ways to read.
async fn read(
    transaction: &Transaction,
    keys: &Keyspace,
    key: u8,
    (way, locking): (u64, Locking),
) -> Result<Vec<u32>> {
    let found = match way {
        0 => transaction.multi_get(keys, &[[key]]).await?.remove(0),
        1 => {
            let mut cursor = transaction.cursor(keys, [key]..);
            let is_there = cursor.next_async().await? && cursor.key() == [key];
            return Ok(if is_there { list_of(Some(cursor.value())) } else { Vec::new() });
        }
        2 if locking == Locking::Pessimistic => transaction.get_for_update(keys, [key]).await?,
        _ => transaction.get(keys, [key]).await?,
    };
    Ok(list_of(found.as_deref()))
}

/// What a history is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Lists,
    Registers,
}

/// A few reads and appends.
async fn steps(
    (env, transaction, keys): (&Env, &Transaction, &Keyspace),
    random: &mut Random,
    locking: Locking,
    shared: &Shared,
    done: &mut Vec<Step>,
) -> Result<()> {
    for _ in 0..=random.below(4) {
        let key = random.below(KEYS) as u8;
        if random.below(2) == 0 {
            let list = read(transaction, keys, key, (random.below(4), locking)).await?;
            done.push(Step::Read(key, list));
        } else {
            let number = shared.numbers.fetch_add(1, Ordering::SeqCst) as u32;
            if random.below(2) == 0 {
                transaction.merge(keys, [key], number.to_le_bytes()).await?;
            } else {
                let mut list = read(transaction, keys, key, (random.below(4), locking)).await?;
                done.push(Step::Read(key, list.clone()));
                list.push(number);
                let value: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
                transaction.put(keys, [key], value).await?;
            }
            done.push(Step::Append(key, number));
        }
        env.yield_now().await;
    }
    Ok(())
}

/// A few reads and writes of registers, some of which are read before.
async fn steps_on_registers(
    (env, transaction, keys): (&Env, &Transaction, &Keyspace),
    random: &mut Random,
    locking: Locking,
    shared: &Shared,
    done: &mut Vec<registers::Step>,
) -> Result<()> {
    for _ in 0..=random.below(4) {
        let key = random.below(KEYS) as u8;
        let (reads, writes) = [(true, false), (false, true), (true, true)][random.below(3) as usize];
        if reads {
            let found = read(transaction, keys, key, (random.below(4), locking)).await?;
            done.push(registers::Step::Read(key, found.last().copied()));
        }
        if writes {
            let number = shared.numbers.fetch_add(1, Ordering::SeqCst) as u32;
            transaction.put(keys, [key], number.to_le_bytes()).await?;
            done.push(registers::Step::Write(key, number));
        }
        env.yield_now().await;
    }
    Ok(())
}

/// One transaction, and how it ended.
async fn one(
    env: &Env,
    (db, keys): (&Db, &Keyspace),
    random: &mut Random,
    (options, shape): (&TransactionOptions, Shape),
    shared: &Shared,
) {
    let began = shared.moment();
    let transaction = db.transaction_with(options.clone());
    let (mut done, mut on_registers) = (Vec::new(), Vec::new());
    let place = (env, &transaction, keys);
    let went = match shape {
        Shape::Lists => steps(place, random, options.locking, shared, &mut done).await,
        Shape::Registers => {
            steps_on_registers(place, random, options.locking, shared, &mut on_registers).await
        }
    };
    let (end, number) = match went {
        Ok(()) if random.below(8) == 0 => (End::RolledBack, None),
        Ok(()) => match transaction.commit().await {
            Ok(number) => (End::Committed, Some(number)),
            Err(error) if error.kind() == ErrorKind::Conflict => (End::RolledBack, None),
            // Of a writer that lost its database nobody knows.
            Err(_) => (End::Unknown, None),
        },
        Err(_) => (End::RolledBack, None),
    };
    let ended = shared.moment();
    match shape {
        Shape::Lists => shared.history.lock().push(Done { steps: done, end, began, ended }),
        Shape::Registers => {
            let done = registers::Done { steps: on_registers, end, number, began, ended };
            shared.of_registers.lock().push(done);
        }
    }
}

/// What the history of a run shows that its level forbids.
fn judged(
    shared: &Shared,
    last: &BTreeMap<u8, Vec<u32>>,
    isolation: Isolation,
    shape: Shape,
) -> std::result::Result<(), String> {
    let level = match isolation {
        Isolation::Snapshot => Level::Snapshot,
        Isolation::Serializable => Level::Serializable,
    };
    match shape {
        // A transaction of a writer that was taken over may read an older state than its
        // successor's.
        Shape::Lists => check(&shared.history.lock(), last, level),
        Shape::Registers => {
            let last = last.iter().map(|(key, list)| (*key, list.last().copied())).collect();
            registers::check(&shared.of_registers.lock(), &last, level)
        }
    }
}

async fn open(env: &Env, objects: &Arc<dyn ObjectStore>, log: &Arc<dyn LogStore>) -> (Db, Keyspace) {
    let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
    let builder = Db::builder("mem://isolation").env(env.clone()).take_over(TakeOver::Always);
    let builder = builder.stores(Arc::clone(objects), Arc::clone(log)).options(options);
    let db = builder.open().await.unwrap();
    let operator = Some(OperatorName::parse("append").unwrap());
    let options = KeyspaceOptions { operator, ..Default::default() };
    let keys = db.open_or_create_keyspace("lists", options).await.unwrap();
    (db, keys)
}

async fn lists(keys: &Keyspace) -> BTreeMap<u8, Vec<u32>> {
    let mut last = BTreeMap::new();
    for key in 0..KEYS as u8 {
        last.insert(key, list_of(keys.get([key]).await.unwrap().as_deref()));
    }
    last
}

/// Transactions of several tasks under one seed. The last state comes after a takeover.
fn simulated(
    seed: u64,
    isolation: Isolation,
    locking: Locking,
    shape: Shape,
) -> std::result::Result<(), String> {
    let shared = Arc::new(Shared::default());
    let world = World::new(seed);
    let process = world.process("writers");
    let env = process.env();
    let history = Arc::clone(&shared);
    let test = async move {
        let shared = history;
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let mut at = open(&env, &objects, &log).await;
        let options = TransactionOptions { isolation, locking, ..Default::default() };
        for round in 0..3 {
            let mut tasks = Vec::new();
            for task in 0..4 {
                let (env, shared, options) = (env.clone(), Arc::clone(&shared), options.clone());
                let (db, keys) = (at.0.clone(), at.1.clone());
                let mut random = Random(seed.wrapping_mul(1000) + 10 * round + task);
                let class = tombolo_env::TaskClass::Foreground;
                tasks.push(env.clone().spawn(class, "transactions", async move {
                    for _ in 0..6 {
                        one(&env, (&db, &keys), &mut random, (&options, shape), &shared).await;
                        match random.below(12) {
                            0 | 1 => drop(db.flush().await),
                            2 => drop(db.compact().await),
                            _ => {}
                        }
                    }
                }));
            }
            let mut random = Random(seed + round);
            // Somewhere in the midst of it, or after it.
            for _ in 0..random.below(60) {
                env.yield_now().await;
            }
            let before = at;
            at = open(&env, &objects, &log).await;
            while !tasks.iter().all(tombolo_env::Task::is_finished) {
                env.sleep(std::time::Duration::from_millis(5)).await;
            }
            drop(before);
        }
        lists(&at.1).await
    };
    let last = process.run(test).ok_or("the process ended")?;
    judged(&shared, &last, isolation, shape).map_err(|anomaly| format!("seed {seed}: {anomaly}"))
}

/// The first seed whose history shows something.
fn first_anomaly(seeds: u64, isolation: Isolation, locking: Locking, shape: Shape) -> Option<String> {
    (1..=seeds).find_map(|seed| simulated(seed, isolation, locking, shape).err())
}

/// Each takes a fifth of a second of a processor, so that the check looks at a few.
fn seeds(shape: Shape) -> u64 {
    match shape {
        _ if crate::is_deep() => 1000,
        Shape::Lists => 9,
        Shape::Registers => 3,
    }
}

fn have(isolation: Isolation, shape: Shape) {
    for locking in [Locking::Optimistic, Locking::Pessimistic] {
        assert_eq!(first_anomaly(seeds(shape), isolation, locking, shape), None, "{locking:?}");
    }
}

#[test]
fn histories_have_snapshot_isolation() {
    have(Isolation::Snapshot, Shape::Lists);
}

#[test]
fn histories_are_serializable() {
    have(Isolation::Serializable, Shape::Lists);
}

#[test]
fn histories_of_registers_have_snapshot_isolation() {
    have(Isolation::Snapshot, Shape::Registers);
}

#[test]
fn histories_of_registers_are_serializable() {
    have(Isolation::Serializable, Shape::Registers);
}

/// The same with threads, which meet where no simulated task does.
#[test]
fn histories_of_threads_are_as_isolated() {
    let rounds = if crate::is_deep() { 400 } else { 25 };
    for (isolation, locking, shape) in [
        (Isolation::Snapshot, Locking::Optimistic, Shape::Lists),
        (Isolation::Serializable, Locking::Optimistic, Shape::Registers),
        (Isolation::Snapshot, Locking::Pessimistic, Shape::Registers),
        (Isolation::Serializable, Locking::Pessimistic, Shape::Lists),
    ] {
        let env = Env::real();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let (db, keys) = env.block_on(open(&env, &objects, &log));
        let shared = Shared::default();
        let options = TransactionOptions { isolation, locking, ..Default::default() };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (env, db, keys, options, shared) = (&env, &db, &keys, &options, &shared);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for round in 0..rounds {
                        env.block_on(one(env, (db, keys), &mut random, (options, shape), shared));
                        if round % 10 == thread {
                            db.flush().wait().unwrap();
                        }
                    }
                });
            }
        });
        let last = env.block_on(lists(&keys));
        judged(&shared, &last, isolation, shape).unwrap();
    }
}

#[cfg(feature = "mutants")]
#[test]
fn histories_show_what_is_taken_out() {
    use tombolo_storage::mutant::{Mutant, enable};

    let (optimistic, pessimistic) = (Locking::Optimistic, Locking::Pessimistic);
    let (lists, registers) = (Shape::Lists, Shape::Registers);
    for (mutant, isolation, locking, shape) in [
        (Mutant::TransactionUnchecked, Isolation::Snapshot, optimistic, lists),
        (Mutant::TransactionUnchecked, Isolation::Snapshot, optimistic, registers),
        (Mutant::TransactionIgnoresTables, Isolation::Snapshot, optimistic, lists),
        (Mutant::SerializableForgetsReads, Isolation::Serializable, optimistic, lists),
        (Mutant::SerializableForgetsReads, Isolation::Serializable, optimistic, registers),
        (Mutant::TransactionCursorUnnoted, Isolation::Serializable, optimistic, lists),
        (Mutant::TransactionIgnoresRanges, Isolation::Serializable, optimistic, lists),
        (Mutant::TransactionMovesWithoutReads, Isolation::Snapshot, pessimistic, lists),
        (Mutant::TransactionMovesWithoutReads, Isolation::Snapshot, pessimistic, registers),
    ] {
        let _on = enable(mutant);
        let found = first_anomaly(300, isolation, locking, shape);
        assert!(found.is_some(), "{mutant:?} is not noticed by {shape:?}");
    }
}
