//! RocksDB's own benchmark and tool, as their package installs them; skipped with a message where
//! they are not. Its write-ahead log is kept in the database, its tables on the disk.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::setup::{Setup, installed, kill, printed, rounds};

/// Reads what `db_bench` reports until it has finished `wanted` operations; says how many it has.
fn finished(child: &mut Child, wanted: u64) -> u64 {
    let mut told = child.stderr.take().unwrap();
    let (mut text, mut byte) = (String::new(), [0]);
    let mut reached = 0;
    while reached < wanted {
        assert_eq!(told.read(&mut byte).unwrap(), 1, "it ended: {text}");
        text.push(char::from(byte[0]));
        if let Some((_, rest)) = text.rsplit_once("finished ")
            && let Some((count, _)) = rest.split_once(" ops")
        {
            reached = count.parse().unwrap();
            text.clear();
        }
    }
    reached
}

fn survives(setup: &Setup, db_bench: &Path, ldb: &Path, round: u64) {
    let directory = setup.files().join(format!("db-{round}"));
    let database = format!("--db={}", directory.display());
    let fill = "--benchmarks=fillseq --num=1000000 --sync=1 --value_size=100 --compression_type=none \
        --write_buffer_size=65536";
    let mut child = setup
        .command(db_bench)
        .arg(&database)
        .args(fill.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let acknowledged = finished(&mut child, 400 + round * 300 % 1000);
    kill(child);
    assert!(
        printed(&setup.command(ldb).args([&database, "checkconsistency"]).output().unwrap()).contains("OK")
    );
    // Keys are numbers in 16 hexadecimal digits, then padding: a prefix of them must be there.
    let scan = printed(&setup.command(ldb).args([&database, "scan", "--hex"]).output().unwrap());
    let numbers: Vec<u64> = scan
        .lines()
        .filter_map(|line| line.strip_prefix("0x").and_then(|line| line.get(..16)))
        .map(|digits| u64::from_str_radix(digits, 16).unwrap())
        .collect();
    assert!(
        numbers.iter().enumerate().all(|(index, number)| index as u64 == *number),
        "round {round}: a hole"
    );
    assert!(
        numbers.len() as u64 >= acknowledged,
        "round {round}: {} keys, and {acknowledged} were acknowledged",
        numbers.len()
    );
    let read = "--benchmarks=readseq --use_existing_db=1 --num=1000000";
    let read = printed(&setup.command(db_bench).arg(&database).args(read.split(' ')).output().unwrap());
    assert!(read.contains("readseq"), "{read}");
}

#[test]
fn rocksdb_survives_kills() {
    let (Some(db_bench), Some(ldb)) = (installed("db_bench"), installed("ldb")) else { return };
    let setup = Setup::new(&["*/*.log"]);
    for round in 0..rounds().div_ceil(2) {
        survives(&setup, &db_bench, &ldb, round);
    }
}
