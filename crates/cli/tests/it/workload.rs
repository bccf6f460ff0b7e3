//! Traces: recorded, seen, modelled, made anew, replayed and scored.

use std::path::Path;

use super::{fails, json, ok};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// A benchmark that is recorded.
fn recorded(folder: &Path) -> String {
    let trace = path(folder, "a.trace");
    let benchmarks = ["bench", "--benchmarks", "fillrandom,mixgraph", "--num", "2000", "--reads", "6000"];
    ok(&[&benchmarks[..], &["--record", &trace]].concat());
    trace
}

#[test]
fn a_workload_goes_from_a_trace_to_a_score() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let seen = json(&ok(&["--json", "workload", "analyse", &trace]));
    assert_eq!(seen["events"], 6000, "{seen}");
    assert!(seen["keyspaces"][0]["operations"]["get"].as_u64().unwrap() > 4500, "{seen}");
    assert!(seen["keyspaces"][0]["scan_entries"]["mean"].as_f64().unwrap() > 1.0, "{seen}");
    let (page, figures) = (path(folder.path(), "a.html"), path(folder.path(), "figures"));
    ok(&["workload", "report", &trace, "--out", &page, "--csv", &figures]);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("What a cache would miss"));
    assert!(std::fs::read_dir(&figures).unwrap().count() >= 8);
    let model = path(folder.path(), "a.toml");
    ok(&["workload", "model", &trace, "--out", &model]);
    assert!(std::fs::metadata(&model).unwrap().len() <= 64 << 10);
    let made = path(folder.path(), "made.trace");
    ok(&["workload", "generate", &model, &made, "--events", "3000"]);
    assert_eq!(json(&ok(&["--json", "workload", "analyse", &made]))["events"], 3000);
    let compared = json(&ok(&["--json", "workload", "compare", &trace, &model]));
    for one in compared.as_array().unwrap() {
        let (what, distance) = (one["what"].as_str().unwrap(), one["distance"].as_f64().unwrap());
        assert!(distance < 0.25, "{what}: {one}");
    }
    let score = json(&ok(&["--json", "workload", "score", &trace, &model]));
    assert_eq!((&score["replay"]["events"], &score["model"]["events"]), (&6000.into(), &6000.into()));
    assert!(ok(&["workload", "flags", &model]).starts_with("db_bench -benchmarks=mixgraph"));
}

#[test]
fn a_trace_is_replayed_by_several_threads_and_caches_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let done = ["--json", "workload", "replay", &trace, "mem://replayed", "--threads", "3"];
    assert_eq!(json(&ok(&done))["events"], 6000);
    let caches = json(&ok(&["--json", "workload", "simulate-cache", &trace, "--sizes", "10,1000"]));
    let ratio = |policy: &str, items: u64| {
        let one =
            caches.as_array().unwrap().iter().find(|one| one["policy"] == policy && one["items"] == items);
        one.unwrap()["miss_ratio"].as_f64().unwrap()
    };
    assert!(ratio("belady", 1000) <= ratio("lru", 1000) && ratio("lru", 1000) < ratio("lru", 10));
    fails(&["workload", "simulate-cache", &trace, "--policies", "best"], 2, &["best", "s3-fifo"]);
}

#[test]
fn lines_go_out_and_come_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let (lines, again) = (path(folder.path(), "a.csv"), path(folder.path(), "again.trace"));
    ok(&["workload", "export", &trace, "--out", &lines]);
    ok(&["workload", "import", "--from", "csv", &lines, &again]);
    let [first, second] = [&trace, &again].map(|trace| json(&ok(&["--json", "workload", "analyse", trace])));
    assert_eq!(first["keyspaces"][0]["operations"], second["keyspaces"][0]["operations"]);
    assert_eq!(first["keyspaces"][0]["value_bytes"], second["keyspaces"][0]["value_bytes"]);
    let objects = path(folder.path(), "objects.csv");
    ok(&["workload", "export", &trace, "--to", "cache-csv", "--out", &objects]);
    let objects = std::fs::read_to_string(&objects).unwrap();
    assert_eq!(
        (objects.lines().count(), objects.lines().next()),
        (6001, Some("time,object,bytes,operation"))
    );
    let binary = path(folder.path(), "a.bin");
    ok(&["workload", "export", &trace, "--to", "oracle-general", "--out", &binary]);
    assert_eq!(std::fs::metadata(&binary).unwrap().len(), 6000 * 24);
}

#[test]
fn a_published_workload_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (model, trace) = (path(folder.path(), "udb.toml"), path(folder.path(), "udb.trace"));
    std::fs::write(&model, ok(&["workload", "preset", "udb", "--keys", "5000"])).unwrap();
    ok(&["workload", "generate", &model, &trace, "--events", "4000"]);
    let seen = json(&ok(&["--json", "workload", "analyse", &trace]));
    assert_eq!((&seen["events"], seen["keyspaces"].as_array().unwrap().len()), (&4000.into(), 6));
    fails(&["workload", "preset", "nobody"], 2, &["zippydb"]);
}

#[test]
fn bad_traces_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let mut bytes = std::fs::read(&trace).unwrap();
    let damaged = path(folder.path(), "damaged.trace");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    fails(&["workload", "analyse", &damaged], 5, &["damaged at byte", "--salvage"]);
    ok(&["workload", "analyse", &damaged, "--salvage"]);
    std::fs::write(&damaged, &bytes[..middle]).unwrap();
    fails(&["workload", "analyse", &damaged], 5, &["ends at byte", "--salvage"]);
    std::fs::write(&damaged, b"PAR1 something else that is long enough for a frame").unwrap();
    fails(&["workload", "analyse", &damaged], 2, &["this is no trace", "import --from"]);
    fails(
        &["workload", "import", "--from", "rocksdb", &damaged, &path(folder.path(), "x")],
        2,
        &["no trace"],
    );
    fails(&["workload", "analyse", &path(folder.path(), "none")], 3, &["is not there"]);
    std::fs::write(&damaged, "form = 1").unwrap();
    fails(&["workload", "flags", &damaged], 2, &["no model"]);
    fails(&["bench", "--record", &trace, "--benchmarks", "fillseq", "--num", "10"], 2, &["File exists"]);
}

#[test]
fn a_model_knows_the_database_and_is_tried_on_the_half_that_it_has_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, store) = (recorded(folder.path()), path(folder.path(), "db"));
    let all = json(&ok(&["--json", "workload", "model", &trace, "--held-out"]));
    let gets = all
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["what"].as_str().unwrap().ends_with(": share of get"))
        .unwrap();
    assert!(gets["distance"].as_f64().unwrap() < 0.05, "{gets}");
    // Replayed keys are there; a key more is known to be one that nobody asked for.
    ok(&["workload", "replay", &trace, &store]);
    ok(&["db", "put", &store, "zzz", "never asked for"]);
    let model = ok(&["workload", "model", &trace, "--among", &store]);
    let has_cold_keys = |line: &str| line.matches('|').count() >= 2;
    assert!(model.contains("run = ") && model.lines().any(has_cold_keys), "{model}");
    fails(&["workload", "model", &trace, "--held-out", "--out", "x"], 2, &["cannot be used with"]);
}

#[test]
fn what_ycsb_prints_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let (lines, trace) = (path(folder.path(), "ycsb.out"), path(folder.path(), "a.trace"));
    std::fs::write(&lines, "INSERT usertable user1 [ field0=abc ]\nREAD usertable user1 [ <all fields>]\n")
        .unwrap();
    let counts = json(&ok(&["--json", "workload", "import", "--from", "ycsb", &lines, &trace]));
    assert_eq!((&counts["put"], &counts["get"]), (&1.into(), &1.into()));
    let again = path(folder.path(), "again.trace");
    fails(&["workload", "import", "--from", "rocksdb", &lines, &again], 2, &["no trace"]);
    assert!(!Path::new(&again).exists(), "a part stays");
}

#[test]
fn benchmarks_are_compared_with_a_replay() {
    let arguments =
        ["--json", "workload", "figure14", "--keys", "3000", "--operations", "2000", "--caches", "10"];
    let figure = json(&ok(&arguments));
    let workloads = figure["caches"][0]["workloads"].as_array().unwrap();
    assert_eq!((workloads.len(), &workloads[0]["costs"]["read bytes"]["by_replay"]), (10, &1.0.into()));
}

/// A real RocksDB writes a trace, where Debian's `rocksdb-tools` is installed.
#[test]
fn a_trace_that_rocksdb_writes_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let (database, raw, trace) =
        (path(folder.path(), "db"), path(folder.path(), "raw"), path(folder.path(), "a.trace"));
    let ran = std::process::Command::new("db_bench")
        .args(["--benchmarks=fillrandom,readrandom,seekrandom,deleterandom", "--num=500", "--threads=1"])
        .args([format!("--db={database}"), format!("--trace_file={raw}")])
        .output();
    let Ok(ran) = ran else {
        println!("db_bench is not installed: its trace is not read here");
        return;
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (raw_blocks, blocks) = (path(folder.path(), "raw_blocks"), path(folder.path(), "blocks.trace"));
    let traced = std::process::Command::new("db_bench")
        .args(["--benchmarks=readrandom", "--use_existing_db", "--num=500"])
        .args([format!("--db={database}"), format!("--block_cache_trace_file={raw_blocks}")])
        .output()
        .unwrap();
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let counts = json(&ok(&["--json", "workload", "import", "--from", "rocksdb", &raw_blocks, &blocks]));
    let seen = json(&ok(&["--json", "workload", "analyse", &blocks]));
    assert_eq!((&seen["events"], &seen["keyspaces"][0]["name"]), (&counts["block"], &"default".into()));
    ok(&["workload", "import", "--from", "rocksdb", &raw, &trace]);
    let seen = json(&ok(&["--json", "workload", "analyse", &trace]));
    let operations = &seen["keyspaces"][0]["operations"];
    assert!(seen["origin"].as_str().unwrap().starts_with("rocksdb "), "{seen}");
    assert!(seen["events"].as_u64().unwrap() >= 500, "{seen}");
    assert!(
        operations
            .as_object()
            .unwrap()
            .keys()
            .all(|name| ["put", "get", "scan", "delete"].contains(&name.as_str()))
    );
}
