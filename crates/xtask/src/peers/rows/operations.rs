//! Rows of operations beside put, get and delete: merges, range deletes, large values, tables from
//! outside. Of the peers RocksDB alone has them all.

use super::{COMPACTED, NATURAL, Scene, Size};

/// Those that can.
const ABLE: &[&str] = &["tombolo", "rocksdb", "rocksdb-tuned"];
/// Most ranges to delete.
const RANGES: u64 = 10_000;

/// All scenes.
pub(super) fn scenes(size: &Size) -> Vec<Scene> {
    size.threads
        .iter()
        .flat_map(|threads| {
            let merges = ["uniform", "zipfian"].map(|spread| merges(size, *threads, spread));
            let large = [("16K", 16 << 10), ("1M", 1 << 20)]
                .map(|(name, value_bytes)| large(size, *threads, name, value_bytes));
            let rest = [ranges(size, *threads), mixed_ranges(size, *threads), ingest(*threads)];
            merges.into_iter().chain(rest).chain(large)
        })
        .map(|scene| scene.only(ABLE))
        .collect()
}

fn merges(size: &Size, threads: usize, spread: &str) -> Scene {
    let with = format!("threads={threads} distribution={spread}");
    let seconds = size.seconds;
    let name = |row: &str| if spread == "uniform" { row.to_owned() } else { format!("{row} {spread}") };
    let get = format!("run getmerged {with} seconds={seconds}");
    Scene::new(format!("merges, {spread}, threads={threads}"))
        .setup("open")
        .write(&name("mergerandom"), threads, format!("run mergerandom {with}"))
        // Ends the process when the sum is not the number of merges.
        .setup("run checkmerged")
        .setup("warm")
        .read(&name("getmerged"), NATURAL, threads, get.clone())
        .setup("compact")
        .setup("run checkmerged")
        .setup("warm")
        .read(&name("getmerged"), COMPACTED, threads, get)
}

/// Half of all keys are hidden by ten thousand ranges.
fn ranges(size: &Size, threads: usize) -> Scene {
    let count = RANGES.min(size.num / 4).max(1);
    let width = (size.num / count / 2).max(1);
    let with = format!("threads={threads}");
    let read = |what: &str| format!("run {what} {with} seconds={}", size.seconds);
    Scene::new(format!("range deletes, {with}"))
        .setup("open")
        .setup("run filluniquerandom settle=1")
        .write("deleterange", threads, format!("run deleterange {with} ranges={count} width={width}"))
        .setup("warm")
        .read("readrandom ranges", NATURAL, threads, read("readrandom"))
        .read("seekrandom ranges", NATURAL, threads, read("seekrandom") + " nexts=10")
        .read("longscan ranges", NATURAL, threads, read("seekrandom") + " nexts=1000")
        .read("readseq ranges", NATURAL, threads, read("readseq"))
}

/// So many operations, since what a time leaves would differ.
fn mixed_ranges(size: &Size, threads: usize) -> Scene {
    Scene::new(format!("range deletes between gets, threads={threads}"))
        .setup("open")
        .setup("run filluniquerandom settle=1")
        .setup("warm")
        .read(
            "deleterange+get",
            NATURAL,
            threads,
            format!("run deleterangeget threads={threads} count={} width=10", (size.num / 4).max(1)),
        )
}

/// As many bytes as 1,000 of each key: values of 1 MiB are 2,000 where there are 2,000,000 keys.
fn large(size: &Size, threads: usize, name: &str, value_bytes: u64) -> Scene {
    let num = (size.num * 1000 / value_bytes).max(16);
    let with = format!("threads={threads} num={num} value={value_bytes}");
    Scene::new(format!("values of {name}, threads={threads}"))
        .setup("open apart=1")
        .write(&format!("fillbig {name}"), threads, format!("run filluniquerandom {with}"))
        .write(&format!("overbig {name}"), threads, format!("run overwrite {with}"))
        .read(
            &format!("readrandom {name}"),
            NATURAL,
            threads,
            format!("run readrandom {with} seconds={}", size.seconds),
        )
}

fn ingest(threads: usize) -> Scene {
    let with = format!("threads={threads}");
    Scene::new(format!("tables from outside, {with}"))
        .setup("open")
        .write("ingest", threads, format!("run ingest {with}"))
        .setup("warm")
        .read("readrandom ingested", NATURAL, threads, format!("run readrandom {with} seconds=1"))
}
