//! Real processes, paused, woken and killed: small runs of the demo and of the crash test.

use std::fs;

use super::{fails, json, ok, uri};

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for group in 0..5 {
        let path = folder.path().join(format!("group {group}"));
        fs::create_dir(&path).unwrap();
        for file in 0..20 {
            fs::write(path.join(format!("file-{file}.txt")), format!("content {group} {file}").repeat(file))
                .unwrap();
        }
    }
    folder
}

#[test]
fn the_demo_loses_nothing() {
    let source = tree();
    let source = source.path().to_str().unwrap();
    let report = json(&ok(&["--json", "demo", "--seconds", "2", "--rounds", "2", "--source", source]));
    assert_eq!(
        (report["lost"].as_u64(), report["wrong"].as_u64(), report["passed"].as_bool()),
        (Some(0), Some(0), Some(true)),
        "{report}"
    );
    assert_eq!((report["files"].as_u64(), report["writers"].as_u64()), (Some(100), Some(4)), "{report}");
    assert!(report["refused_to_stale_writer"].as_u64().unwrap() >= 100, "{report}");
    assert!(report["writes_acknowledged"].as_u64().unwrap() >= 100, "{report}");
    assert!(report["entries_read_back"].as_u64() >= report["writes_acknowledged"].as_u64(), "{report}");
    assert_eq!(report["takeovers"].as_array().unwrap().len(), 3, "{report}");
    assert_eq!((report["nodes"].as_u64(), report["nodes_killed"].as_u64()), (Some(4), Some(2)), "{report}");
}

#[test]
fn the_demo_keeps_a_database_that_the_user_named() {
    let source = tree();
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let log = format!("{store}?form=written");
    ok(&[
        "demo",
        "--seconds",
        "1",
        "--rounds",
        "1",
        "--source",
        source.path().to_str().unwrap(),
        "--store",
        &store,
        "--log",
        &log,
    ]);
    let files = ok(&["db", "scan", &store, "--keyspace", "files", "--keys-only"]);
    assert_eq!(files.lines().count(), 100);
    assert_eq!(json(&ok(&["--json", "db", "verify", &store]))["damage"].as_array().unwrap().len(), 0);
}

#[test]
fn killed_writers_lose_nothing_in_both_forms() {
    for form in ["written", "mapped"] {
        let report = json(&ok(&["--json", "crash", "--rounds", "6", "--form", form, "--seed", "7"]));
        assert_eq!(report["rounds"].as_u64(), Some(6), "{report}");
        assert!(report["batches_acknowledged"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn what_a_cut_of_the_power_took_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let judge = ["--json", "crash-judge", "--store", &store, "--seed", "7"];
    let nothing = json(&ok(&[&judge[..], &["--heard", "0,0"]].concat()));
    assert_eq!(nothing["last"].as_array().unwrap().len(), 2, "{nothing}");
    fails(&[&judge[..], &["--heard", "9,9"]].concat(), 1, &["was acknowledged"]);
}

#[test]
fn load_and_faults_lose_nothing_and_stay_within_the_memory() {
    let report = json(&ok(&["--json", "soak", "--minutes", "0.06", "--life-ms", "1500", "--seed", "7"]));
    assert!(report["kills"].as_u64() >= Some(1), "{report}");
    assert!(report["budget_peak_bytes"].as_u64() > Some(0), "{report}");
}

#[test]
fn two_writers_that_fight_beside_a_standby_lose_nothing() {
    let report = json(&ok(&["--json", "fight", "--seconds", "3", "--seed", "7"]));
    assert!(report["standby_takeovers"].as_u64() >= Some(1), "{report}");
    assert!(report["takeovers"].as_u64() >= Some(2), "{report}");
    assert!(report["batches_acknowledged"].as_u64() > Some(0), "{report}");
    assert!(report["looks"].as_u64() > Some(0), "{report}");
}
