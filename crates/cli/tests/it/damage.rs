//! Damaged, missing, foreign and newer files of a database: the error names object, offset,
//! expected and found, and no read is wrong.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{fails, json, ok, tombolo, uri};

/// A closed database with one table and an empty log.
fn database() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for number in 0..5 {
        ok(&["db", "put", &store, &format!("key-{number}"), &"value ".repeat(30)]);
    }
    ok(&["db", "compact", &store]);
    (folder, store)
}

/// The files of the database whose names contain `part`.
fn files(folder: &TempDir, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.path().join("db")];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_str().unwrap().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The tables, those that nothing reads any more included.
fn tables(folder: &TempDir) -> Vec<PathBuf> {
    let tables = files(folder, "/table/");
    assert!(!tables.is_empty());
    tables
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    // Objects are read-only on disk: replace the file.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// One damaged database does not keep the others under a root from being swept.
#[test]
fn gc_goes_on_behind_a_damaged_database() {
    let (folder, store) = database();
    ok(&["db", "put", &uri(&folder.path().join("later")), "k", "v"]);
    for record in files(&folder, "/manifest/") {
        change(&record, |bytes| bytes[40] ^= 1);
    }
    let ran = tombolo(&["gc", &uri(folder.path()), "--delete"]);
    assert_eq!(ran.code, 5, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains(&format!("{store}: ")) && ran.stdout.contains("nothing of it is touched"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("later: ") && ran.stdout.contains("2 databases"), "{}", ran.stdout);
}

/// The file among `paths` that a message names.
fn named<'a>(message: &str, paths: &'a [PathBuf]) -> Option<&'a PathBuf> {
    paths.iter().find(|path| message.contains(&name(path)))
}

#[test]
fn a_flipped_byte_of_a_table_is_found_with_its_place() {
    let (folder, store) = database();
    let tables = tables(&folder);
    for table in &tables {
        change(table, |bytes| bytes[20] ^= 1);
    }
    let message = fails(&["db", "get", &store, "key-1"], 5, &["at byte", "expected", "found", "to do"]);
    let table = named(&message, &tables).unwrap_or_else(|| panic!("{message}"));
    let ran = tombolo(&["--json", "db", "verify", &store]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let damage = json(&ran.stdout)["damage"][0].as_str().unwrap().to_owned();
    assert!(damage.contains(&name(table)), "{damage}");
    fails(&["inspect", table.to_str().unwrap()], 5, &[&name(table), "expected", "found"]);
}

#[test]
fn a_cut_a_missing_and_a_foreign_table_are_found() {
    for (what, damage) in [
        ("cut", (|path| change(path, |bytes| bytes.truncate(100))) as fn(&Path)),
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("foreign", |path| change(path, |bytes| *bytes = b"#!/bin/sh\n".repeat(100))),
        ("empty", |path| change(path, Vec::clear)),
    ] {
        let (folder, store) = database();
        let tables = tables(&folder);
        tables.iter().for_each(|table| damage(table));
        let ran = tombolo(&["db", "get", &store, "key-1"]);
        assert_eq!(ran.code, 5, "{what}: {}{}", ran.stdout, ran.stderr);
        assert!(named(&ran.stderr, &tables).is_some(), "{what}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{what}: {}", ran.stdout);
    }
}

#[test]
fn a_flipped_byte_of_the_manifest_stops_the_opening() {
    let (folder, store) = database();
    // The newest record sorts first.
    let record = files(&folder, "/manifest/").into_iter().next().unwrap();
    change(&record, |bytes| bytes[45] ^= 1);
    fails(&["db", "get", &store, "key-1"], 5, &[&name(&record), "expected", "found", "to do"]);
    fails(&["inspect", &store, "manifest"], 5, &[&name(&record)]);
    let message =
        fails(&["db", "verify", &store], 5, &[&name(&record), &format!("tombolo inspect {store} manifest")]);
    assert!(!message.contains("db verify"), "it sends its user to itself: {message}");
    assert!(message.contains(&format!("tombolo db salvage {store}")), "{message}");
}

#[test]
fn a_flipped_byte_in_the_middle_of_the_log_is_no_tail() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "k", "v"]);
    // A log whose writer did not close it: what a killed process leaves. The demo and the crash
    // test make such logs for real.
    let segments =
        files(&folder, "/log/").into_iter().filter(|path| name(path) != "control").collect::<Vec<_>>();
    let mut changed = None;
    for segment in &segments {
        let bytes = fs::read(segment).unwrap();
        if let Some(at) = bytes.windows(4).position(|window| window == b"TmFr") {
            change(segment, |bytes| bytes[at + 70] ^= 1);
            changed = Some(segment);
        }
    }
    let Some(segment) = changed else { return };
    let ran = tombolo(&["inspect", segment.to_str().unwrap()]);
    assert_eq!(ran.code, 5, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("expected") && ran.stderr.contains("found"), "{}", ran.stderr);
    // Either the log is not needed any more, or its damage is told; never another value, never
    // silence.
    let ran = tombolo(&["db", "get", &store, "k"]);
    assert!(
        (ran.code == 0 && ran.stdout == "v\n") || ran.code == 5,
        "{}: {}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (folder, store) = database();
    let record = files(&folder, "/manifest/").into_iter().next().unwrap();
    change(&record, |bytes| {
        // Version 9 under a right checksum: sound bytes of a later Tombolo.
        bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
        let end = bytes.len() - 4;
        let checksum = tombolo_format::checksum::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    });
    fails(&["db", "get", &store, "key-1"], 2, &["newer", "9", &name(&record)]);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn every_file_of_a_small_database_may_be_cut_to_nothing() {
    let (original, _) = database();
    for index in 0..files(&original, "").len() {
        let folder = tempfile::tempdir().unwrap();
        copy(&original.path().join("db"), &folder.path().join("db"));
        let store = uri(&folder.path().join("db"));
        let file = &files(&folder, "")[index];
        change(file, Vec::clear);
        let ran = tombolo(&["db", "get", &store, "key-1"]);
        let right = ran.code == 0 && ran.stdout.trim_end() == "value ".repeat(30).trim_end();
        assert!(
            right || [2, 3, 5].contains(&ran.code),
            "{}: {} {}{}",
            file.display(),
            ran.code,
            ran.stdout,
            ran.stderr
        );
        assert!(right || ran.stdout.is_empty(), "{}: {}", file.display(), ran.stdout);
    }
}

/// A database without damage is salvaged whole; without a table there is a state before it or there
/// are holes, and both are told.
#[test]
fn a_damaged_database_is_salvaged_and_what_is_lost_is_told() {
    let (folder, store) = database();
    ok(&["db", "put", &store, "newer", "in the log"]);
    let saved = |name: &str| uri(&folder.path().join(name));
    let report = json(&ok(&["--json", "db", "salvage", &store, "--to", &saved("whole")]));
    assert_eq!(
        (report["whole"].as_bool(), report["log_entries"].as_u64()),
        (Some(true), Some(1)),
        "{report}"
    );
    assert_eq!(ok(&["db", "scan", &saved("whole")]), ok(&["db", "scan", &store]));
    fails(&["db", "salvage", &store, "--to", &saved("whole")], 2, &["AlreadyExists", "to do"]);
    for table in tables(&folder) {
        if table.starts_with(folder.path().join("db")) {
            change(&table, |bytes| bytes[30] ^= 1);
        }
    }
    let lost = tombolo(&["db", "salvage", &store, "--with-holes", "--to", &saved("holes")]);
    assert_eq!(lost.code, 1, "{}{}", lost.stdout, lost.stderr);
    for word in ["LOST", "key-0", "key-4", "\"default\"", "expected", "found"] {
        assert!(lost.stdout.contains(word), "{word} is not in {}", lost.stdout);
    }
    assert_eq!(ok(&["db", "get", &saved("holes"), "newer"]).trim(), "in the log");
    fails(&["db", "get", &saved("holes"), "key-1"], 3, &[]);
    fails(&["db", "salvage", &saved("nothing")], 3, &["there is no database"]);
}

/// Each advice names another step, up to the one that saves what can be had.
#[test]
fn advice_leads_on_from_damage_to_what_can_be_saved() {
    let (folder, store) = database();
    for table in tables(&folder) {
        change(&table, |bytes| bytes[30] ^= 1);
    }
    fails(&["db", "get", &store, "key-1"], 5, &["tombolo db salvage"]);
    let verified = tombolo(&["db", "verify", &store]);
    assert!(verified.code == 1 && verified.stderr.contains(&format!("tombolo db salvage {store}")));
    let said = format!("{}{}", verified.stdout, verified.stderr);
    assert!(!said.contains("db verify"), "it sends its user to itself: {said}");
    let survey = tombolo(&["db", "salvage", &store]);
    for words in ["with --with-holes", &format!("tombolo db salvage {store} --to NEW_URI --with-holes")] {
        assert!(survey.code == 1 && survey.stdout.contains(words), "{words}: {}", survey.stdout);
    }
    let survey = json(&tombolo(&["--json", "db", "salvage", &store]).stdout);
    assert!(survey["with_holes"]["tables"].is_u64(), "{survey}");
}

#[test]
fn verify_reads_the_records_of_lives() {
    let (folder, store) = database();
    ok(&["db", "verify", &store]);
    let record = files(&folder, "/incarnation/").into_iter().next().unwrap();
    let sound = fs::read(&record).unwrap();
    for damage in [0, sound.len() / 2] {
        change(&record, |bytes| bytes.truncate(damage));
        let verified = tombolo(&["db", "verify", &store]);
        assert!(
            verified.code == 1 && verified.stdout.contains("incarnation/"),
            "{damage} bytes: {}{}",
            verified.stdout,
            verified.stderr
        );
    }
    fs::write(&record, sound).unwrap();
    ok(&["db", "verify", &store]);
}

#[test]
fn a_log_that_is_on_no_nodes_is_no_damage() {
    let (_folder, store) = database();
    let ran = tombolo(&["log", "status", &store]);
    assert!(ran.code == 0 && ran.stderr.contains("not on nodes"), "{}{}", ran.stdout, ran.stderr);
    assert!(json(&ok(&["--json", "log", "status", &store]))["kept_at"].is_string());
}

#[test]
fn a_link_to_itself_ends_no_command() {
    let (folder, store) = database();
    for place in [folder.path().join("round"), folder.path().join("db/round")] {
        std::os::unix::fs::symlink(&place, &place).unwrap();
    }
    assert!(ok(&["gc", &uri(folder.path())]).contains("1 database;"));
    ok(&["inspect", &store]);
    ok(&["db", "verify", &store]);
    let round = uri(&folder.path().join("round"));
    fails(&["db", "get", &round, "k"], 2, &["round", "leads back to itself"]);
}
