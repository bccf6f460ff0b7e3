//! How long opening takes with many tables: `cargo run --release -p tombolo --example open_tables -- /path 100 1000 10000`.
//!
//! For each number a database is made whose tables do not overlap, closed, and opened five times: milliseconds until the handle is there,
//! until a first key was read, and until a first durable write ended; medians.

use std::time::Instant;

use tombolo::{Db, Durability, OpenMode, Options, Result};

const ROUNDS: usize = 5;

fn options(automatic_compaction: bool) -> Options {
    let mut options = Options::default();
    options.automatic_compaction = automatic_compaction;
    options
}

fn key(table: u64, entry: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&table.to_be_bytes());
    key[8..].copy_from_slice(&entry.to_be_bytes());
    key
}

/// A database with `tables` tables of ten entries each.
fn create(uri: &str, tables: u64) -> Result<()> {
    let db = Db::builder(uri).mode(OpenMode::Create).options(options(false)).open().wait()?;
    let keys = db.default_keyspace();
    for table in 0..tables {
        for entry in 0..10 {
            keys.put_with(key(table, entry), [7; 100], Durability::Accepted).wait()?;
        }
        db.flush().wait()?;
    }
    db.close().wait()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "/tmp/tombolo-open".into());
    let mut counts: Vec<u64> = arguments.filter_map(|count| count.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![100, 1000];
    }
    println!("{:>8} {:>10} {:>12} {:>16}   medians of {ROUNDS}, ms", "tables", "open", "first get", "first durable put");
    for count in counts {
        let uri = format!("file://{directory}/{count}");
        create(&uri, count)?;
        let (mut opened, mut read, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS as u64 {
            let began = Instant::now();
            let took = || began.elapsed().as_secs_f64() * 1e3;
            let db = Db::builder(&uri).mode(OpenMode::Open).options(options(false)).open().wait()?;
            opened.push(took());
            let keys = db.default_keyspace();
            assert!(keys.get(key(count / 2, round)).wait()?.is_some(), "a key that was written");
            read.push(took());
            keys.put(b"touched", round.to_be_bytes()).wait()?;
            written.push(took());
            db.close().wait()?;
        }
        println!("{count:>8} {:>10.1} {:>12.1} {:>16.1}", median(opened), median(read), median(written));
    }
    Ok(())
}
