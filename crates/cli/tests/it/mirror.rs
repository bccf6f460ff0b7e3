//! `tombolo mirror`, `db promote` and `db move`: what follows a database, and takes its place.

use crate::{fails, json, ok, uri};

/// A source of three entries and the place of its mirror.
fn places() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (source, mirror) = (uri(&folder.path().join("source")), uri(&folder.path().join("mirror")));
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        ok(&["db", "put", &source, key, value]);
    }
    (folder, source, mirror)
}

#[test]
fn a_mirror_follows_is_compared_and_takes_the_place_of_a_source_that_is_lost() {
    let (folder, source, mirror) = places();
    let said = json(&ok(&["--json", "mirror", &source, &mirror, "--once"]));
    assert_eq!((&said["lag_writes"], &said["error"]), (&0.into(), &serde_json::Value::Null), "{said}");
    // It may be read, and nobody writes to it by mistake.
    assert_eq!(ok(&["db", "scan", &mirror]), "a\t1\nb\t2\nc\t3\n");
    fails(&["db", "put", &mirror, "d", "4"], 2, &["mirror of", "promote"]);
    ok(&["db", "put", &source, "d", "4"]);
    let state = json(&ok(&["--json", "db", "promote", &mirror, "--dry-run"]));
    assert_eq!((&state["mirror"], &state["missing"]), (&true.into(), &1.into()), "{state}");
    // A source that answers is not lost.
    fails(&["db", "promote", &mirror], 2, &["lacks 1 of its writes", "db move"]);
    let lines = ok(&["--json", "mirror", &source, &mirror, "--verify-all"]);
    let verified = json(lines.lines().last().unwrap());
    assert_eq!(verified["verified"]["entries"], 4, "{verified}");
    assert_eq!(verified["verified"]["differences"], serde_json::json!([]));
    fails(&["mirror", &mirror, &source, "--once"], 2, &[]);

    std::fs::remove_dir_all(folder.path().join("source")).unwrap();
    let promoted = ok(&["db", "promote", &mirror]);
    assert!(promoted.contains("is a database of its own now"), "{promoted}");
    ok(&["db", "put", &mirror, "e", "5"]);
    assert_eq!(ok(&["db", "count", &mirror]), "5\n");
    assert!(ok(&["db", "promote", &mirror, "--dry-run"]).contains("an ordinary database"));
}

#[test]
fn a_database_moves_and_its_old_place_says_where() {
    let (_folder, source, target) = places();
    let moved = json(&ok(&["--json", "db", "move", &source, &target]));
    assert_eq!(moved["moved"], source, "{moved}");
    assert!(moved["gap_seconds"].as_f64().unwrap() >= 0.0);
    fails(&["db", "put", &source, "d", "4"], 2, &["has moved to", &target]);
    ok(&["db", "put", &target, "d", "4"]);
    assert_eq!(ok(&["db", "scan", &target]), "a\t1\nb\t2\nc\t3\nd\t4\n");
    // What has ended is not undone.
    fails(&["db", "move", &source, &target, "--back"], 2, &["not about to move"]);
    // And the other way round, as a mirror of what it was.
    ok(&["mirror", &target, &source, "--once"]);
    assert_eq!(ok(&["db", "scan", &source]), "a\t1\nb\t2\nc\t3\nd\t4\n");
}
