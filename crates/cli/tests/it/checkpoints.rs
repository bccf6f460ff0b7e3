//! Checkpoints at the prompt, and reading beside a live writer.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{fails, json, ok, uri};

#[test]
fn a_checkpoint_is_made_read_restored_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (store, copy) = (uri(&folder.path().join("db")), uri(&folder.path().join("copy")));
    ok(&["db", "put", &store, "1", "before"]);
    let made = json(&ok(&["--json", "db", "checkpoint", "create", &store, "monday"]));
    assert_eq!(
        (made["name"].as_str(), made["tables"].as_u64(), made["entries"].as_u64()),
        (Some("monday"), Some(1), Some(1))
    );
    fails(&["db", "checkpoint", "create", &store, "monday"], 2, &["AlreadyExists", "monday"]);
    ok(&["db", "put", &store, "1", "after"]);
    ok(&["db", "compact", &store]);

    let listed = ok(&["db", "checkpoint", "list", &store]);
    assert!(listed.starts_with("monday\t20") && listed.contains("1 table"), "{listed}");
    assert_eq!(ok(&["db", "get", &store, "1"]), "after\n");
    assert_eq!(ok(&["db", "get", &store, "1", "--checkpoint", "monday"]), "before\n");
    assert_eq!(ok(&["db", "scan", &store, "--checkpoint", "monday"]), "1\tbefore\n");
    assert_eq!(
        ok(&["db", "export", &store, "--checkpoint", "monday"]),
        "{\"key\":\"1\",\"value\":\"before\"}\n"
    );
    fails(&["db", "get", &store, "1", "--checkpoint", "tuesday"], 3, &["tuesday"]);

    let text = ok(&["db", "checkpoint", "restore", &store, "monday", &copy]);
    assert!(text.contains(&copy), "{text}");
    fails(&["db", "checkpoint", "restore", &store, "monday", &copy], 2, &["AlreadyExists"]);
    ok(&["db", "checkpoint", "delete", &store, "monday"]);
    assert_eq!(ok(&["db", "checkpoint", "list", &store]), "");
    fails(&["db", "checkpoint", "delete", &store, "monday"], 3, &["monday"]);
    // The copy is a database of its own: it stays, and is written to.
    assert_eq!(ok(&["db", "get", &copy, "1"]), "before\n");
    ok(&["db", "put", &copy, "2", "new"]);
    assert_eq!(ok(&["db", "scan", &copy, "--keys-only"]), "1\n2\n");
    fails(&["db", "checkpoint", "list", &uri(&folder.path().join("none"))], 3, &[]);
}

#[test]
fn a_damaged_checkpoint_is_listed_and_deleted_by_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "1", "one"]);
    ok(&["db", "checkpoint", "create", &store, "monday"]);
    let id = json(&ok(&["--json", "db", "checkpoint", "create", &store, "tuesday"]))["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let object = folder.path().join("db/0000000000000001/checkpoint").join(&id);
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let listed = ok(&["db", "checkpoint", "list", &store]);
    assert!(
        listed.starts_with("monday\t") && listed.contains(&format!("\n{id}\tcannot be read")),
        "{listed}"
    );
    assert_eq!(ok(&["db", "get", &store, "1", "--checkpoint", "monday"]), "one\n");
    fails(&["db", "get", &store, "1", "--checkpoint", "tuesday"], 5, &["tuesday", &id]);
    ok(&["db", "checkpoint", "delete", &store, &id]);
    assert_eq!(ok(&["db", "checkpoint", "list", &store]).lines().count(), 1);
}

#[test]
fn reading_only_takes_nothing_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "1", "in a table"]);
    ok(&["db", "flush", &store]);
    let epoch = || json(&ok(&["--json", "db", "levels", &store]))["epoch"].as_u64().unwrap();
    let before = epoch();
    assert_eq!(ok(&["db", "get", &store, "1"]), "in a table\n");
    assert_eq!(ok(&["db", "scan", &store]), "1\tin a table\n");
    assert!(ok(&["db", "verify", &store]).contains("read 1 table ("));
    assert_eq!(epoch(), before, "reading has claimed an epoch");
    ok(&["db", "put", &store, "2", "in the log"]);
    // A write that only the log has is left out when tables alone are asked for.
    fails(&["db", "get", &store, "2", "--tables-only"], 3, &["no value", "tables only"]);
    assert_eq!(ok(&["db", "get", &store, "2"]), "in the log\n");
    fails(&["db", "get", &uri(&folder.path().join("none")), "1"], 3, &[]);
    assert!(!folder.path().join("none").exists());
}

#[test]
fn a_clone_that_is_interrupted_leaves_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (store, copy) = (uri(&folder.path().join("db")), uri(&folder.path().join("copy")));
    ok(&["db", "put", &store, "1", "one"]);
    // A target whose every request takes long.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["db", "clone", &store, &format!("{copy}?latency_ms=20000")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while ok(&["db", "checkpoint", "list", &store]).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(ok(&["db", "checkpoint", "list", &store]), "");
    // Nor does one that fails, or succeeds.
    fails(&["db", "clone", &store, "nosuch://x"], 2, &["nosuch"]);
    ok(&["db", "clone", &store, &uri(&folder.path().join("other"))]);
    assert_eq!(ok(&["db", "checkpoint", "list", &store]), "");
}

/// A clone that shares tables: made, listed, kept by its source, moved away by compaction, given
/// back by gc.
#[test]
fn a_clone_that_shares_tables_is_told_kept_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| uri(&folder.path().join(name));
    let (store, copy) = (place("orders"), place("tests"));
    ok(&["db", "put", &store, "1", "one"]);
    let said = ok(&["db", "clone", &store, &copy, "--share"]);
    assert!(said.contains("shares"), "{said}");
    assert_eq!(ok(&["db", "get", &copy, "1"]), "one\n");
    let listed = ok(&["db", "clones", "list", &store]);
    assert!(listed.contains("../tests") && listed.contains("needed"), "{listed}");
    let listed = json(&ok(&["--json", "db", "clones", "list", &store]));
    let id = listed["id"].as_str().unwrap().to_owned();
    assert_eq!((listed["state"].as_str(), listed["tables"].as_u64()), (Some("needed"), Some(1)));
    assert!(ok(&["db", "stats", &copy]).contains("under other databases"));
    assert!(ok(&["inspect", &copy, "manifest"]).contains("table of a source added"));
    assert!(ok(&["inspect", &store, "pins"]).contains("clone"));
    fails(&["db", "destroy", &store, "--yes"], 2, &["../tests", "gc"]);
    fails(&["db", "clones", "release", &store, &id], 2, &["may need"]);
    fails(&["db", "clones", "release", &store, "12"], 2, &["clones list"]);
    let kept = ok(&["gc", &uri(folder.path()), "--delete"]);
    assert!(kept.contains("kept: 1 table shared with ../tests"), "{kept}");
    // A checkpoint shared as well, and deleted by hand: nothing there proves nothing.
    ok(&["db", "checkpoint", "create", &store, "c"]);
    ok(&["db", "checkpoint", "restore", &store, "c", &place("gone"), "--share"]);
    ok(&["db", "checkpoint", "delete", &store, "c"]);
    std::fs::remove_dir_all(folder.path().join("gone")).unwrap();
    let kept = ok(&["gc", &uri(folder.path()), "--delete"]);
    assert!(kept.contains("proves nothing") && kept.contains("--force"), "{kept}");
    ok(&["db", "put", &place("gone"), "2", "two"]);
    let given = ok(&["gc", &uri(folder.path()), "--delete"]);
    assert!(given.contains("given back: 1 table shared with ../gone"), "{given}");
    ok(&["db", "compact", &copy]);
    assert_eq!(ok(&["db", "clones", "list", &store]), "");
    ok(&["db", "destroy", &store, "--yes"]);
    assert_eq!(ok(&["db", "get", &copy, "1"]), "one\n");
}

/// Of databases that share tables, and none of which is to live, each goes once those have that
/// share with it.
#[test]
fn gc_destroys_clones_before_their_sources() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| uri(&folder.path().join(name));
    for name in ["a", "stays"] {
        ok(&["db", "put", &place(name), "1", "one"]);
    }
    ok(&["db", "clone", &place("a"), &place("b"), "--share"]);
    ok(&["db", "clone", &place("b"), &place("c"), "--share"]);
    ok(&["gc", &uri(folder.path()), "--live", "stays", "--delete"]);
    for name in ["a", "b", "c"] {
        fails(&["db", "get", &place(name), "1"], 3, &["destroyed"]);
    }
}
