//! Rates of the main verbs on a directory:
//! `cargo run --release -p tombolo --example measure -- /path [mapped|written] [keys]`.
//!
//! One line for each verb: operations a second of one thread, and of two. A figure of an example,
//! not a benchmark: it warms nothing up.

use std::time::Instant;

use tombolo::{Db, Durability, Keyspace, Result};

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Runs `each` for the numbers below `count`, divided among threads; operations a second.
fn rate(threads: u64, count: u64, each: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread| {
            let each = &each;
            scope.spawn(move || (0..count).filter(|number| number % threads == thread).try_for_each(each))
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn report(name: &str, count: u64, each: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let one = rate(1, count, &each)?;
    let two = rate(2, count, &each)?;
    println!("{name:<28} {one:>12.0}/s {two:>12.0}/s");
    Ok(())
}

fn reads(keys: &Keyspace, count: u64) -> Result<()> {
    report("get", count, |number| keys.get(key(number)).wait().map(drop))?;
    report("get_with", count, |number| keys.get_with(key(number), <[u8]>::len).wait().map(drop))?;
    report("get of absent keys", count, |number| keys.get(key(number + (1 << 40))).wait().map(drop))?;
    report("seek and 10 next", count / 10, |number| {
        let mut scan = keys.scan::<&[u8]>(..);
        scan.seek(key(number));
        scan.take(10).try_for_each(|entry| entry.map(drop))
    })?;
    let began = Instant::now();
    let rows = keys.scan::<&[u8]>(..).count();
    println!("{:<28} {:>12.0}/s", "scan, rows", rows as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "/tmp/tombolo-measure".into());
    let form = arguments.next().unwrap_or_else(|| "mapped".into());
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let uri = format!("file://{directory}");
    let db = Db::builder(&uri).log(format!("{uri}?form={form}")).open().wait()?;
    let keys = db.default_keyspace();
    let value = [7; 100];
    println!("{:<28} {:>14} {:>14}", form, "one thread", "two threads");
    report("put, durable", 20_000, |number| keys.put(key(number), value).wait())?;
    report("put, accepted", count, |number| keys.put_with(key(number), value, Durability::Accepted).wait())?;
    report("put, accepted, ascending", count, |number| {
        keys.put_with((number + (1 << 60)).to_be_bytes(), value, Durability::Accepted).wait()
    })?;
    report("put, unlogged", count, |number| keys.put_with(key(number), value, Durability::Unlogged).wait())?;
    reads(&keys, count)?;
    db.compact().wait()?;
    println!("compacted: {:?}", db.stats());
    reads(&keys, count)?;
    db.close().wait()
}
