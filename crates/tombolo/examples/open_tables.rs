//! How long opening takes with many tables:
//! `cargo run --release -p tombolo --example open_tables -- /path 100 1000 10000`, or, with
//! `--features cloud`, `… -- 's3://bucket/open?endpoint=http://127.0.0.1:7070' 100 1000`.
//!
//! For each number a database is made whose tables do not overlap, closed, and opened five times:
//! milliseconds until the handle is there, until a first key was read, and until a first durable
//! write ended; medians. The last column are the requests for objects of the last opening, all of
//! them, in flight together or not.

use std::time::Instant;

use tombolo::{Db, Durability, OpenMode, Options, Result};

const ROUNDS: usize = 5;

fn options(automatic_compaction: bool) -> Options {
    Options { automatic_compaction, ..Options::default() }
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

/// The URI of a database below a directory or a URI.
fn below(root: &str, name: u64) -> String {
    match root.split_once('?') {
        Some((root, parameters)) => format!("{root}/{name}?{parameters}"),
        None if root.contains("://") => format!("{root}/{name}"),
        None => format!("file://{root}/{name}"),
    }
}

/// The requests for objects that a database has made.
fn requests(db: &Db) -> String {
    let mut kinds = std::collections::BTreeMap::<&str, u64>::new();
    for counted in db.requests().counted {
        *kinds.entry(counted.kind.name()).or_default() += counted.requests;
    }
    kinds.iter().map(|(kind, requests)| format!("{requests} {kind}")).collect::<Vec<_>>().join(", ")
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
    println!(
        "{:>8} {:>10} {:>12} {:>16}   medians of {ROUNDS}, ms; an opening's requests",
        "tables", "open", "first get", "first durable put"
    );
    for count in counts {
        let uri = below(&directory, count);
        create(&uri, count)?;
        let (mut opened, mut read, mut written, mut asked) =
            (Vec::new(), Vec::new(), Vec::new(), String::new());
        for round in 0..ROUNDS as u64 {
            let began = Instant::now();
            let took = || began.elapsed().as_secs_f64() * 1e3;
            let db = Db::builder(&uri).mode(OpenMode::Open).options(options(false)).open().wait()?;
            opened.push(took());
            asked = requests(&db);
            let keys = db.default_keyspace();
            assert!(keys.get(key(count / 2, round)).wait()?.is_some(), "a key that was written");
            read.push(took());
            keys.put(b"touched", round.to_be_bytes()).wait()?;
            written.push(took());
            db.close().wait()?;
        }
        println!(
            "{count:>8} {:>10.1} {:>12.1} {:>16.1}   {asked}",
            median(opened),
            median(read),
            median(written)
        );
    }
    Ok(())
}
