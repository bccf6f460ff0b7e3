//! One verb, so many times, in one process: for counting instructions and cache misses under
//! callgrind.
//!
//! `cargo build --release -p tombolo --example write_cost`, then, for example:
//! `valgrind --tool=callgrind --cache-sim=yes target/release/examples/write_cost random 60000`. Run
//! it with two counts: the difference leaves opening and closing out. Verbs: `random`, `ascending`,
//! `durable`, `batch` (1,000 puts each), `get` and `missing` (of what `random` wrote). A third
//! argument is the number of threads, a fourth the log's form. Without callgrind it prints
//! operations a second and the process's CPU time for each.

use std::time::Instant;

use tombolo::{Batch, Db, Durability, Keyspace, Options, Result};

/// Sixteen bytes that spread over the whole key space.
fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn run(db: &Db, keys: &Keyspace, verb: &str, numbers: impl Iterator<Item = u64>) -> Result<()> {
    let value = [7; 100];
    let mut batch = Batch::new();
    for number in numbers {
        match verb {
            "random" => keys.put_with(key(number), value, Durability::Accepted).wait()?,
            "ascending" => keys.put_with(number.to_be_bytes(), value, Durability::Accepted).wait()?,
            "durable" => keys.put(key(number), value).wait()?,
            "get" => drop(keys.get_with(key(number), <[u8]>::len).wait()?),
            "missing" => drop(keys.get_with(key(number + (1 << 40)), <[u8]>::len).wait()?),
            _ => {
                batch.put(keys, key(number), value);
                if batch.len() == 1000 {
                    db.write_with(std::mem::take(&mut batch), Durability::Accepted).wait()?;
                }
            }
        }
    }
    Ok(())
}

/// CPU time of the process, by the kernel's own count, in nanoseconds.
fn cpu_nanos() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        after.split_ascii_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks * 1e7
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize, default: &str| arguments.get(index).map_or(default, String::as_str).to_owned();
    let verb = text(0, "random");
    let count: u64 = text(1, "60000").parse().unwrap_or(60_000);
    let threads: u64 = text(2, "1").parse().unwrap_or(1);
    let directory = std::env::temp_dir().join(format!("tombolo-write-cost-{}", std::process::id()));
    let uri = format!("file://{}", directory.display());
    let log = format!("{uri}?form={}", text(3, "mapped"));
    let db =
        Db::builder(&uri).log(log).options(Options::parse(["memory_bytes=1073741824"])?).open().wait()?;
    let keys = db.default_keyspace();
    if matches!(&*verb, "get" | "missing") {
        run(&db, &keys, "batch", 0..100_000)?;
    }
    let (began, cpu) = (Instant::now(), cpu_nanos());
    std::thread::scope(|scope| {
        let each = |thread: u64| {
            let (db, keys, verb) = (&db, &keys, &verb);
            scope.spawn(move || {
                run(db, keys, verb, (0..count).filter(move |number| number % threads == thread))
            })
        };
        let running: Vec<_> = (0..threads).map(each).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_nanos() - cpu);
    println!(
        "{verb} {count} by {threads}: {:.0}/s, {:.0} ns of CPU each",
        count as f64 / seconds,
        cpu / count as f64
    );
    db.close().wait()?;
    // Best effort: a temporary directory.
    let _ = std::fs::remove_dir_all(directory);
    Ok(())
}
