//! Many threads on one database in the real world: batches are seen whole, a thread's writes in its
//! order, and all of them at the end.

use std::sync::atomic::{AtomicBool, Ordering};

use tombolo::{Batch, Db, Durability, Env, KeyspaceOptions, Options};

const WRITERS: u32 = 3;
const ROUNDS: u64 = 1500;

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

#[test]
fn batches_are_whole_to_all_threads_through_flushes_and_compactions() {
    let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
    let registry = tombolo::Registry::with_defaults();
    let open = |env: &Env| {
        Db::builder("mem://threads")
            .env(env.clone())
            .registry(registry.clone())
            .options(options.clone())
            .open()
            .wait()
            .unwrap()
    };
    let env = Env::real();
    let db = open(&env);
    let (left, right) =
        (db.default_keyspace(), db.create_keyspace("right", KeyspaceOptions::default()).wait().unwrap());
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, left, right) = (db.clone(), left.clone(), right.clone());
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let mut value = round.to_be_bytes().to_vec();
                        value.resize(100, 0);
                        let mut batch = Batch::new();
                        batch.put(&left, writer.to_be_bytes(), &value).put(
                            &right,
                            writer.to_be_bytes(),
                            &value,
                        );
                        batch.put(
                            &left,
                            [b"history".as_slice(), &writer.to_be_bytes(), &round.to_be_bytes()].concat(),
                            &value,
                        );
                        let durability = [Durability::Durable, Durability::Accepted, Durability::Unlogged]
                            [(round % 3) as usize];
                        db.write_with(batch, durability).wait().unwrap();
                        assert_eq!(
                            left.get_with(writer.to_be_bytes(), number).wait().unwrap(),
                            Some(round),
                            "one's own write is read"
                        );
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = [0; WRITERS as usize];
                while writing.load(Ordering::Acquire) {
                    let snapshot = db.snapshot();
                    for writer in 0..WRITERS {
                        let one = snapshot
                            .get(&left, writer.to_be_bytes())
                            .wait()
                            .unwrap()
                            .map_or(0, |value| number(&value));
                        let other = snapshot
                            .get(&right, writer.to_be_bytes())
                            .wait()
                            .unwrap()
                            .map_or(0, |value| number(&value));
                        assert_eq!(one, other, "a batch is whole");
                        assert!(one >= seen[writer as usize], "time does not go back");
                        seen[writer as usize] = one;
                    }
                }
            });
        }
        scope.spawn(|| {
            while writing.load(Ordering::Acquire) {
                db.flush().wait().unwrap();
                db.compact().wait().unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        writing.store(false, Ordering::Release);
    });
    db.close().wait().unwrap();
    drop((db, left, right));
    let db = open(&env);
    let history = db
        .default_keyspace()
        .scan(b"history".as_slice()..b"histosy".as_slice())
        .filter(std::result::Result::is_ok)
        .count();
    assert_eq!(history as u64, u64::from(WRITERS) * ROUNDS);
}

#[test]
fn single_writes_of_many_threads_meet_in_the_commit_section_and_none_is_lost() {
    const THREADS: u32 = 4;
    const WRITES: u32 = 4000;
    let registry = tombolo::Registry::with_defaults();
    let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=262144"]).unwrap();
    let env = Env::real();
    let open = || {
        Db::builder("mem://meet")
            .env(env.clone())
            .registry(registry.clone())
            .options(options.clone())
            .open()
            .wait()
            .unwrap()
    };
    let db = open();
    let keys = db.default_keyspace();
    let before = db.stats().last_sequence;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let keys = keys.clone();
            scope.spawn(move || {
                for number in 0..WRITES {
                    let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                    keys.put_with(&key, key.repeat(1 + number as usize % 7), Durability::Accepted)
                        .wait()
                        .unwrap();
                    keys.put_with(thread.to_be_bytes(), number.to_be_bytes(), Durability::Accepted)
                        .wait()
                        .unwrap();
                    let newest = keys.get(thread.to_be_bytes()).wait().unwrap().unwrap();
                    assert_eq!(
                        newest,
                        number.to_be_bytes()[..],
                        "a thread's writes are in the order of its calls"
                    );
                }
            });
        }
    });
    assert_eq!(db.stats().last_sequence - before, u64::from(2 * THREADS * WRITES), "each took one number");
    drop((db, keys));
    let keys = open().default_keyspace();
    for (thread, number) in (0..THREADS).flat_map(|thread| (0..WRITES).map(move |number| (thread, number))) {
        let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
        assert_eq!(keys.get(&key).wait().unwrap().unwrap(), key.repeat(1 + number as usize % 7)[..]);
    }
}

#[test]
fn closing_right_after_opening_ends() {
    let env = Env::real();
    for round in 0..20 {
        let builder = Db::builder(format!("mem://close-{round}"))
            .env(env.clone())
            .registry(tombolo::Registry::with_defaults());
        builder.open().wait().unwrap().close().wait().unwrap();
    }
}
