//! A disk that fills and empties again.

use std::time::Duration;

use tombolo::{Batch, Db, Durability, Env, ErrorKind, Keyspace, Options};
use tombolo_env::simulated::World;

async fn open(env: &Env, form: &str) -> Db {
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap();
    let builder = Db::builder("file:///db").env(env.clone()).options(options);
    builder.log(format!("file:///db?form={form}")).open().await.unwrap()
}

/// Writes until the disk refuses, without waiting for room in memory; how many were taken.
async fn fill(db: &Db, keys: &Keyspace, durability: Durability, from: u32) -> u32 {
    for number in from.. {
        let mut batch = Batch::new();
        batch.put(keys, number.to_be_bytes(), [7; 4000]);
        let ended = match db.try_write(batch, durability) {
            Ok(write) => write.await,
            Err(rejected) => Err(rejected.error),
        };
        match ended {
            Ok(()) => assert!(number < from + 10_000, "a full disk takes no end of writes"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Busy), "{error}");
                return number;
            }
        }
    }
    unreachable!("numbers end")
}

#[test]
fn the_first_write_succeeds_once_the_disk_has_room_again() {
    for form in ["mapped", "written"] {
        for durability in [Durability::Durable, Durability::Accepted, Durability::Unlogged] {
            for spare in [0, 100_000] {
                let world = World::new(3);
                let process = world.process("writer");
                let env = process.env();
                let host = world.host(0);
                process
                    .run(async move {
                        let db = open(&env, form).await;
                        let keys = db.default_keyspace();
                        let mut count = 0;
                        for round in 0..2 {
                            host.set_capacity(Some(host.used() + spare));
                            count = fill(&db, &keys, durability, count).await;
                            // The background tries meanwhile, and fails.
                            env.sleep(Duration::from_secs(round * 30)).await;
                            host.set_capacity(None);
                            let write = keys.put_with(count.to_be_bytes(), [7; 4000], durability);
                            let message = format!("{form} {durability:?} with {spare} bytes, round {round}");
                            write.await.unwrap_or_else(|error| panic!("{message}: {error}"));
                            count += 1;
                        }
                        for number in 0..count {
                            assert!(
                                keys.get(number.to_be_bytes()).await.unwrap().is_some(),
                                "write {number} was acknowledged"
                            );
                        }
                    })
                    .unwrap();
            }
        }
    }
}
