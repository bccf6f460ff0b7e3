//! SQLite's shell, as its package installs it; skipped with a message where it is not.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::setup::{Setup, installed, kill, printed, rounds};

/// Writes rows one by one, each its own transaction, until it is killed after `rows` of them; says
/// how many were acknowledged.
fn insert_until_killed(setup: &Setup, sqlite: &std::path::Path, pragmas: &str, first: u64, rows: u64) -> u64 {
    let mut child =
        setup.command(sqlite).arg("orders.db").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(
        input,
        ".bail on\n{pragmas}\nCREATE TABLE IF NOT EXISTS orders(number INTEGER PRIMARY KEY, what TEXT);"
    )
    .unwrap();
    writeln!(input, "SELECT 'ready';").unwrap();
    while lines.next().unwrap().unwrap() != "ready" {}
    let mut acknowledged = 0;
    for number in first..first + rows {
        // The next insert is on its way while the last one is acknowledged, so that the kill meets
        // one at work.
        writeln!(
            input,
            "INSERT INTO orders VALUES({number}, hex(zeroblob({})));\nSELECT {number};",
            20 + number * 37 % 4000
        )
        .unwrap();
        if number > first {
            assert_eq!(lines.next().unwrap().unwrap(), (number - 1).to_string());
            acknowledged = number - first;
        }
    }
    kill(child);
    acknowledged
}

fn sqlite_survives(name: &str, patterns: &[&str], pragmas: &str) {
    let Some(sqlite) = installed("sqlite3") else { return };
    let setup = Setup::new(patterns);
    let (mut first, mut least) = (1, 0);
    for round in 0..rounds() {
        least += insert_until_killed(&setup, &sqlite, pragmas, first, 12 + round * 5 % 40);
        let check = "PRAGMA integrity_check; SELECT count(*), coalesce(max(number), 0), count(*) = \
            coalesce(max(number), 0) FROM orders;";
        let found = printed(&setup.command(&sqlite).args(["orders.db", check]).output().unwrap());
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(found[0], "ok", "{name}, round {round}");
        let counts: Vec<u64> = found[1].split('|').map(|count| count.parse().unwrap()).collect();
        assert!(
            counts[0] >= least && counts[2] == 1,
            "{name}, round {round}: {counts:?}, and {least} were acknowledged"
        );
        (first, least) = (counts[1] + 1, counts[0]);
    }
    // On the disk there is no database.
    let on_disk = std::fs::read(setup.files().join("orders.db")).unwrap();
    assert!(on_disk.starts_with(b"TOMBOLO-PRELOAD 1 "));
}

#[test]
fn sqlite_with_a_rollback_journal_survives_kills() {
    sqlite_survives("rollback journal", &["*.db", "*.db-journal"], "PRAGMA synchronous=FULL;");
}

#[test]
fn sqlite_with_a_journal_that_is_truncated_survives_kills() {
    sqlite_survives(
        "truncated journal",
        &["*.db", "*.db-journal"],
        "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL;",
    );
}

#[test]
fn sqlite_with_a_write_ahead_log_survives_kills() {
    sqlite_survives(
        "write-ahead log",
        &["*.db", "*.db-wal", "*.db-journal"],
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    );
}

#[test]
fn sqlite_finds_its_files_on_a_machine_without_its_directory() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let setup = Setup::new(&["**/*.db", "**/*.db-wal", "**/*.db-journal"]);
    std::fs::create_dir(setup.files().join("sub")).unwrap();
    let write = "PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES('here');";
    printed(&setup.command(&sqlite).args(["sub/a.db", write]).output().unwrap());
    std::fs::remove_dir_all(setup.files().join("sub")).unwrap();
    // Whatever asks for a matching path opens the database, which puts the placeholders back.
    assert!(!setup.command("/bin/cat").arg("a.db").output().unwrap().status.success());
    let listed: Vec<_> = std::fs::read_dir(setup.files().join("sub"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(listed, ["a.db"]);
    let found = printed(&setup.command(&sqlite).args(["sub/a.db", "SELECT x FROM t;"]).output().unwrap());
    assert_eq!(found, "here\n");
}

/// SQLite takes an empty journal for none, and would then read half a transaction.
#[test]
fn sqlite_rolls_back_with_a_journal_whose_placeholder_was_not_finished() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let setup = Setup::new(&["*.db", "*.db-journal"]);
    let write = "CREATE TABLE t(x); INSERT INTO t SELECT hex(zeroblob(2000)) FROM generate_series(1, 100);";
    printed(&setup.command(&sqlite).args(["a.db", write]).output().unwrap());
    let mut child =
        setup.command(&sqlite).arg("a.db").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // With so small a cache pages of the transaction go to the file before it ends.
    writeln!(input, "PRAGMA cache_size=1; BEGIN; DELETE FROM t WHERE rowid % 2 = 0;").unwrap();
    writeln!(input, "INSERT INTO t SELECT hex(zeroblob(2000)) FROM generate_series(1, 300); SELECT 'ready';")
        .unwrap();
    assert_eq!(BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap(), "ready");
    kill(child);
    std::fs::write(setup.files().join("a.db-journal"), "").unwrap();
    let found = setup
        .command(&sqlite)
        .args(["a.db", "PRAGMA integrity_check; SELECT count(*) FROM t;"])
        .output()
        .unwrap();
    assert_eq!(printed(&found), "ok\n100\n");
}

#[test]
fn what_sqlite_cannot_have_here_fails_and_says_why() {
    let Some(sqlite) = installed("sqlite3") else { return };
    // The shared memory of a write-ahead log is mapped by every process that has the database open.
    let setup = Setup::new(&["*.db", "*.db-*"]);
    let write = "PRAGMA journal_mode=WAL; CREATE TABLE t(x);";
    let output = setup.command(&sqlite).args(["a.db", write]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("a shared mmap is not supported"), "{told}");
    // Maps of the database itself are only tried.
    let setup = Setup::new(&["*.db", "*.db-journal"]);
    let write = "PRAGMA mmap_size=1000000; CREATE TABLE t(x); INSERT INTO t VALUES(7); SELECT x FROM t;";
    assert!(printed(&setup.command(&sqlite).args(["a.db", write]).output().unwrap()).ends_with("7\n"));
}

#[test]
fn an_ordinary_database_is_taken_over_from_the_disk() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let setup = Setup::new(&["*.db", "*.db-journal"]);
    let write = "CREATE TABLE t(x); INSERT INTO t SELECT hex(zeroblob(3000)) FROM generate_series(1, 100);";
    printed(&Command::new(&sqlite).current_dir(setup.files()).args(["a.db", write]).output().unwrap());
    let output = setup
        .command(&sqlite)
        .args(["a.db", "PRAGMA integrity_check; SELECT count(*) FROM t;"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("was taken over from the disk"));
    assert_eq!(printed(&output), "ok\n100\n");
    assert!(std::fs::read(setup.files().join("a.db")).unwrap().starts_with(b"TOMBOLO-PRELOAD 1 "));
    // Without the library there is no database, and SQLite says so.
    let without = Command::new(&sqlite)
        .current_dir(setup.files())
        .args(["a.db", "SELECT count(*) FROM t;"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&without.stderr).contains("file is not a database"));
}

/// A network namespace has its own names of local sockets: to the library its processes are another
/// machine's.
#[test]
fn another_machine_takes_over_from_a_live_process_which_learns_it() {
    let (Some(sqlite), Some(unshare)) = (installed("sqlite3"), installed("unshare")) else { return };
    if !Command::new(&unshare).args(["-n", "true"]).output().unwrap().status.success() {
        eprintln!("skipped: this user cannot make a network namespace");
        return;
    }
    let setup = Setup::new(&["*.db", "*.db-journal"]);
    let mut first = setup
        .command(&sqlite)
        .arg("a.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = first.stdin.take().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    writeln!(input, "CREATE TABLE t(x); INSERT INTO t VALUES('first'); SELECT 'ready';").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let other = |arguments: [&str; 2]| {
        let mut command = setup.command(&unshare);
        printed(&command.arg("-n").arg(&sqlite).args(arguments).output().unwrap())
    };
    // On the same machine it is refused while the first lives.
    let refused = setup.command(&sqlite).args(["a.db", "SELECT x FROM t;"]).output().unwrap();
    assert!(
        !refused.status.success()
            && String::from_utf8_lossy(&refused.stderr).contains("another process of this host")
    );
    assert_eq!(other(["a.db", "INSERT INTO t VALUES('second'); SELECT x FROM t;"]), "first\nsecond\n");
    writeln!(input, "INSERT INTO t VALUES('late');").unwrap();
    drop(input);
    let output = first.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("Fenced") && told.contains("error near line 2"), "{told}");
    assert_eq!(other(["a.db", "PRAGMA integrity_check; SELECT x FROM t;"]), "ok\nfirst\nsecond\n");
}
