//! Gets out of blocks that the host holds in memory and a full cache does not take in: of those
//! only a part is decompressed.

use tombolo::{Db, Durability, Env, ErrorKind, KeyspaceOptions, Options, Result};
use tombolo_env::simulated::World;

const KEYS: u32 = 20_000;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:07}{}", if number.is_multiple_of(3) { "-and more" } else { "" }).into_bytes()
}

/// Of many lengths, each of its own; every seventh key was deleted. Halves compress.
fn value(number: u32) -> Option<Vec<u8>> {
    let byte = |at: u32| {
        if at.is_multiple_of(2) { b'v' } else { (number.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 }
    };
    (!number.is_multiple_of(7)).then(|| (0..number % 131).map(byte).collect())
}

async fn open(env: Env) -> Result<Db> {
    let options = Options::parse(["memory_bytes=1048576", "automatic_compaction=false"])?;
    Db::builder("file:///db").env(env).options(options).open().await
}

async fn write(env: Env, settings: &'static [&'static str]) -> Result<()> {
    let db = open(env).await?;
    let mut options = KeyspaceOptions::default();
    for (name, value) in settings.iter().filter_map(|setting| setting.split_once('=')) {
        options.set(name, value)?;
    }
    let keys = db.create_keyspace("keys", options).await?;
    for number in 0..KEYS {
        keys.put_with(
            key(number),
            value(number).unwrap_or_else(|| b"deleted".to_vec()),
            Durability::Accepted,
        )
        .await?;
    }
    for number in (0..KEYS).filter(|number| value(*number).is_none()) {
        keys.delete_with(key(number), Durability::Accepted).await?;
    }
    db.compact().await?;
    db.close().await
}

/// Reads keys far from one another; how many answers were errors.
async fn read(env: Env) -> Result<usize> {
    let db = open(env).await?;
    let keys = db.keyspace("keys")?;
    let mut damaged = 0;
    for step in 0..6000u32 {
        let number = step.wrapping_mul(7919) % KEYS;
        match keys.get(key(number)).await {
            Ok(found) => assert_eq!(found.as_deref(), value(number).as_deref(), "key {number}"),
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::Corrupt && error.to_string().contains("/table/"),
                    "{error}"
                );
                damaged += 1;
                continue;
            }
        }
        let absent = [&key(number)[..], b"!"].concat();
        match keys.get(&absent).await {
            Ok(found) => assert_eq!(found, None, "what is not there, after key {number}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
        }
    }
    db.close().await?;
    Ok(damaged)
}

#[test]
fn gets_beside_a_full_cache_answer_as_any_other() {
    for settings in [
        &[][..],
        &["compression=none"],
        &["compression=zstd"],
        &["block_bytes=1024", "filter_bits=0"],
        &["block_bytes=65536"],
    ] {
        let world = World::new(3);
        let process = world.process("one");
        process.run(write(process.env(), settings)).unwrap().unwrap();
        let damaged = process.run(read(process.env())).unwrap().unwrap();
        assert_eq!(damaged, 0, "{settings:?}");
    }
}

#[test]
fn gets_beside_a_full_cache_say_what_is_damaged() {
    let world = World::new(4);
    let process = world.process("one");
    process.run(write(process.env(), &[])).unwrap().unwrap();
    let (table, length) = world
        .host(0)
        .all_files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("/table/"))
        .max_by_key(|(_, length)| *length)
        .unwrap();
    for at in (1..10).map(|tenth| length / 10 * tenth) {
        world.host(0).damage(&table, |content| content[usize::try_from(at).unwrap()] ^= 4).unwrap();
    }
    let damaged = process.run(read(process.env())).unwrap().unwrap();
    assert!((5..500).contains(&damaged), "{damaged} answers were errors: nine blocks are damaged");
}
