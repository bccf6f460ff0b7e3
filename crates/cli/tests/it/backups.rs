//! `tombolo backup`: made, listed, checked, restored, deleted; and what bad input gets.

use std::path::Path;

use crate::{fails, json, ok, tombolo, uri};

/// A database of three entries whose changes are archived, and the place of its backups.
fn places() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (store, backups) = (uri(&folder.path().join("store")), uri(&folder.path().join("backups")));
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        ok(&["db", "put", &store, key, value]);
    }
    ok(&["db", "subscriptions", "create", &store, "archive", "--all"]);
    (folder, store, backups)
}

/// The first file below a folder.
fn a_file(folder: &Path) -> std::path::PathBuf {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.remove(0)
}

#[test]
fn backups_are_made_checked_restored_to_a_point_and_deleted() {
    let (folder, store, backups) = places();
    let again = |name: &str| uri(&folder.path().join(name));
    let made = json(&ok(&["--json", "backup", "create", &store, &backups]));
    assert_eq!((&made["backup"], &made["copied_bytes"]), (&1.into(), &made["bytes"]), "{made}");
    ok(&["db", "put", &store, "d", "4"]);
    let archived = json(&ok(&["--json", "backup", "archive", &store, &backups]));
    assert_eq!((&archived["changes"], &archived["gap"]), (&1.into(), &serde_json::Value::Null), "{archived}");
    let point = archived["last"].to_string();
    ok(&["db", "delete", &store, "a"]);
    ok(&["backup", "archive", &store, &backups]);
    let second = ok(&["backup", "create", &store, &backups]);
    assert!(second.starts_with("2\t"), "{second}");
    let listed = ok(&["--json", "backup", "list", &backups]);
    assert_eq!(listed.lines().map(|line| json(line)["backup"].clone()).collect::<Vec<_>>(), [1, 2]);
    let verified = json(&ok(&["--json", "backup", "verify", &backups]));
    let none = serde_json::json!([]);
    assert_eq!((&verified["backups"], &verified["changes"]), (&2.into(), &2.into()), "{verified}");
    assert_eq!((&verified["damage"], &verified["gaps"]), (&none, &none), "{verified}");

    // As it is, up to a write, and all.
    let restores: [(&str, Vec<&str>, &str); 3] = [
        ("first", vec!["--backup", "1"], "a\t1\nb\t2\nc\t3\n"),
        ("point", vec!["--to-sequence", &point], "a\t1\nb\t2\nc\t3\nd\t4\n"),
        ("newest", vec![], "b\t2\nc\t3\nd\t4\n"),
    ];
    for (name, point, expected) in restores {
        let target = again(name);
        let arguments = [vec!["--json", "backup", "restore", &backups, &target], point].concat();
        let restored = json(&ok(&arguments));
        assert_eq!(restored["is_complete"], true, "{restored}");
        assert_eq!(ok(&["db", "scan", &target]), expected, "{name}");
    }
    fails(&["backup", "restore", &backups, &again("newest")], 2, &["holds a database"]);

    let pruned = json(&ok(&["--json", "backup", "prune", &backups, "--keep", "1"]));
    assert_eq!(pruned["backups"], serde_json::json!([1]), "{pruned}");
    assert_eq!(ok(&["--json", "backup", "list", &backups]).lines().count(), 1);
    fails(&["backup", "restore", &backups, &again("gone"), "--to-sequence", &point], 3, &["no backup"]);
}

#[test]
fn damage_of_backups_has_an_exit_code_of_its_own() {
    let (folder, store, backups) = places();
    ok(&["backup", "create", &store, &backups, "--copy"]);
    let table = a_file(&folder.path().join("backups/tables"));
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&table).unwrap();
    std::fs::write(&table, bytes).unwrap();
    let ran = tombolo(&["backup", "verify", &backups]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("not all sound"), "{}", ran.stdout);
    let target = uri(&folder.path().join("target"));
    fails(&["backup", "restore", &backups, &target], 5, &["checksum"]);
}

#[test]
fn bad_input_to_backups_is_refused_with_advice() {
    let (folder, store, backups) = places();
    let target = uri(&folder.path().join("target"));
    fails(&["backup", "restore", &backups, &target], 3, &["no backups at"]);
    ok(&["backup", "create", &store, &backups]);
    fails(&["backup", "restore", &backups, &target, "--backup", "7"], 3, &["no backup 7", "backup list"]);
    fails(&["backup", "restore", &backups, &target, "--backup", "1", "--to-sequence", "2"], 2, &["with"]);
    fails(&["backup", "restore", &backups, &target, "--to-time", "yesterday"], 2, &["yesterday"]);
    fails(&["backup", "prune", &backups, "--keep", "some"], 2, &["some"]);
    fails(&["backup", "unlock", &backups], 2, &["--yes"]);
    // A place is of one database.
    let other = uri(&folder.path().join("other"));
    ok(&["db", "put", &other, "x", "1"]);
    fails(&["backup", "create", &other, &backups], 2, &["another database"]);
    assert!(!folder.path().join("target").exists(), "the target was touched");
}
