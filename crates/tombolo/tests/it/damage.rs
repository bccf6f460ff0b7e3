//! Each byte of a small database flipped in turn: opening and reading answer right, or with a typed
//! error; never wrongly, never by a panic.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tombolo::{Db, Durability, Env, ErrorKind, Options, Result};
use tombolo_env::simulated::World;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

async fn open(env: Env, form: &str) -> Result<Db> {
    // Compaction would only rewrite damaged tables, or fail to: the test is about reads.
    let options = Options::parse(["memory_bytes=1048576", "automatic_compaction=false"])?;
    Db::builder("file:///db").log(format!("file:///db?form={form}")).env(env).options(options).open().await
}

/// Tables, a manifest of several records, and a log that must be replayed.
async fn write(env: Env, form: &'static str) -> Result<Entries> {
    let db = open(env, form).await?;
    let keys = db.default_keyspace();
    let mut entries = Entries::new();
    for round in 0..3u32 {
        for index in 0..20u32 {
            let (key, value) = (
                format!("key-{:02}", (index * 7 + round) % 40),
                format!("value of round {round}, {}", "z".repeat(20)),
            );
            keys.put_with(&key, &value, Durability::Accepted).await?;
            entries.insert(key.into_bytes(), value.into_bytes());
        }
        if round < 2 {
            db.flush().await?;
        }
    }
    keys.put(b"last", b"durable").await?;
    entries.insert(b"last".to_vec(), b"durable".to_vec());
    Ok(entries)
}

/// What opening and reading gives; every answer must be right, so a wrong one panics here.
async fn read(env: Env, form: &'static str, expected: Entries) -> Result<()> {
    let db = open(env, form).await?;
    let keys = db.default_keyspace();
    let mut failed = None;
    for (key, value) in &expected {
        match keys.get(key).await {
            Ok(found) => assert_eq!(
                found.as_deref(),
                Some(&value[..]),
                "a wrong answer for {:?}",
                String::from_utf8_lossy(key)
            ),
            Err(error) => failed = Some(error),
        }
    }
    let mut scan = keys.scan::<&[u8]>(..);
    let mut wanted = expected.iter();
    loop {
        match scan.next_async().await {
            Ok(found) => {
                let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
                assert_eq!(
                    found,
                    wanted.next().map(|(key, value)| (key.clone(), value.clone())),
                    "a wrong answer of a scan"
                );
                if found.is_none() {
                    break;
                }
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Flips one byte of each `step`, beginning with `start`; counts answers that were right, and
/// errors.
fn flip(form: &'static str, start: usize, step: usize) -> (usize, usize) {
    let world = World::new(7);
    let writer = world.process("writer");
    let entries = writer.run(write(writer.env(), form)).unwrap().unwrap();
    writer.kill();
    let image = world.host(0).disk_image();
    let files = world.host(0).all_files();
    // The zeros that a log's segment has ahead of its writes are not the database.
    let bytes = |path: &PathBuf, length: u64| {
        let content = world.host(0).content(path).unwrap();
        let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        length.min(used + 64)
    };
    let total: u64 = files.iter().map(|(path, length)| bytes(path, *length)).sum();
    assert!(total <= 64 << 10, "a small database: {total} bytes in {files:?}");
    let places =
        files.iter().flat_map(|(path, length)| (0..bytes(path, *length)).map(move |offset| (path, offset)));
    let (mut right, mut errors) = (0, 0);
    let (start, step) = if crate::is_deep() { (0, 1) } else { (start, step) };
    for (number, (path, offset)) in places.enumerate().skip(start).step_by(step) {
        let world = World::new(number as u64);
        world.host(0).set_disk(&image);
        world.host(0).damage(path, |content| content[offset as usize] ^= 1 << (number % 8) | 0x10).unwrap();
        world.note(&format!("byte {offset} of {} is flipped", path.display()));
        let reader = world.process("reader");
        match reader.run(read(reader.env(), form, entries.clone())).expect("nothing ends the reader") {
            Ok(()) => right += 1,
            Err(error) => {
                let typed = matches!(
                    error.kind(),
                    ErrorKind::Corrupt
                        | ErrorKind::Unsupported
                        | ErrorKind::NotFound
                        | ErrorKind::Invalid
                        | ErrorKind::Fenced
                );
                assert!(typed, "byte {offset} of {}: {error}", path.display());
                errors += 1;
            }
        }
    }
    (right, errors)
}

/// Every so manieth byte is flipped, of the two forms not the same; in a deep run each one.
const STEP: usize = 29;

#[test]
fn a_flipped_byte_is_an_error_or_harmless_with_the_mapped_log() {
    let (right, errors) = flip("mapped", 0, STEP);
    assert!(errors > 0 && right + errors > 180, "{right} right, {errors} errors");
}

#[test]
fn a_flipped_byte_is_an_error_or_harmless_with_the_written_log() {
    let (right, errors) = flip("written", 3, STEP);
    assert!(errors > 0 && right + errors > 180, "{right} right, {errors} errors");
}
