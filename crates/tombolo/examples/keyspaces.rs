//! What many keyspaces cost:
//! `cargo run --release -p tombolo --example keyspaces -- file:///path 10000`.
//!
//! Creates so many, writes an entry to each, flushes, closes and opens again; then writes to each
//! again and flushes. Seconds of each step, and how much the process's own memory has grown by it.

use std::time::Instant;

use tombolo::{Db, Durability, KeyspaceOptions, OpenMode, Result};

/// Bytes of memory that are the process's own.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("RssAnon:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

struct Steps {
    began: Instant,
    before: u64,
    count: u64,
}

impl Steps {
    fn end(&mut self, name: &str) {
        let grown = memory().saturating_sub(self.before);
        println!(
            "{name:<28} {:>8.2} s {:>10} bytes for each",
            self.began.elapsed().as_secs_f64(),
            grown / self.count.max(1)
        );
        (self.began, self.before) = (Instant::now(), memory());
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mem://keyspaces".into());
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let open = |mode| Db::builder(&uri).mode(mode).open().wait();
    let db = open(OpenMode::Create)?;
    let mut steps = Steps { began: Instant::now(), before: memory(), count };
    let create =
        |number: u64| db.create_keyspace(&format!("keyspace-{number:06}"), KeyspaceOptions::default());
    // Pipelined: the syncs are shared.
    let created = (0..count).map(create).collect::<Vec<_>>();
    let keyspaces = created.into_iter().map(tombolo::Op::wait).collect::<Result<Vec<_>>>()?;
    steps.end("created");
    db.flush().wait()?;
    steps.end("flushed without entries");
    let write = |keyspaces: &[tombolo::Keyspace]| {
        keyspaces
            .iter()
            .try_for_each(|keyspace| keyspace.put_with(b"key", b"value", Durability::Accepted).wait())
    };
    write(&keyspaces)?;
    steps.end("an entry written to each");
    db.flush().wait()?;
    steps.end("flushed, a table each");
    drop(keyspaces);
    db.close().wait()?;
    drop(db);
    steps.end("closed");
    let db = open(OpenMode::Open)?;
    steps.end("opened again");
    let keyspaces = db.keyspaces();
    write(&keyspaces)?;
    for keyspace in &keyspaces {
        assert_eq!(keyspace.get(b"key").wait()?.as_deref(), Some(&b"value"[..]), "what was written");
    }
    steps.end("written to and read");
    db.flush().wait()?;
    steps.end("flushed again");
    db.close().wait()
}
