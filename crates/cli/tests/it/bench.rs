//! `tombolo bench`: every benchmark runs, says the truth, and leaves nothing behind.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{fails, json, ok, tombolo, uri};

/// Every benchmark, over and over: the fills begin anew, the rest works on the entries that are
/// there.
const ALL: &str = "fillseq,fillrandom,filluniquerandom,overwrite,flush,wait,readrandom,readmissing,multireadrandom,readasync,seekrandom,readseq,readreverse,\
                   readwhilewriting,deleterandom,singledelete,mergerandom,readrandom,compact,readrandom,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f,mixgraph,deletescan,fillttl,fill100K,fillbig,ingest,deleterange,deleterangeget,\
                   mergerandom,checkmerged,getmerged,queue,seekdeleted,createkeyspaces,checkpoint,fillsync,fillrandombatch,fillbatch,stats";

fn row<'a>(rows: &'a Value, name: &str) -> &'a Value {
    rows.as_array()
        .unwrap()
        .iter()
        .find(|row| row["benchmark"] == name)
        .unwrap_or_else(|| panic!("{name}: {rows}"))
}

#[test]
fn every_benchmark_runs_and_its_figures_hold_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("result.json");
    let text = ok(&[
        "bench",
        "--store",
        "mem://all",
        "--benchmarks",
        ALL,
        "--num",
        "3000",
        "--reads",
        "1000",
        "--threads",
        "2",
    ]
    .iter()
    .copied()
    .chain(["--batch-size", "16", "--multiread-stride", "1", "--json", file.to_str().unwrap()])
    .chain(["--ranges", "150", "--range-keys", "10"])
    .collect::<Vec<_>>());
    let rows = json(&fs::read_to_string(&file).unwrap());
    let names: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| row["benchmark"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ALL.split(',').collect::<Vec<_>>());
    for (name, operations) in [
        ("fillseq", 3000),
        ("readrandom", 1000),
        ("multireadrandom", 1000),
        ("fillsync", 1000),
        ("fillbatch", 3000),
        ("ingest", 3000),
        ("fillbig", 16),
        ("deleterange", 150),
    ] {
        assert_eq!(row(&rows, name)["operations"].as_u64(), Some(operations), "{name}");
        assert!(text.contains(name), "{text}");
    }
    // filluniquerandom wrote every key, and none of them is one that readmissing asks for.
    for (name, found) in [
        ("readrandom", 1000),
        ("readmissing", 0),
        ("multireadrandom", 1000),
        ("readasync", 1000),
        ("seekrandom", 1000),
    ] {
        assert_eq!(row(&rows, name)["found"].as_u64(), Some(found), "{name}");
    }
    for row in rows.as_array().unwrap() {
        assert_eq!(row["errors"].as_u64(), Some(0), "{row}");
        for field in [
            "seconds",
            "operations_per_second",
            "bytes_per_second",
            "cpu_micros_per_operation",
            "bytes_written",
        ] {
            assert!(row[field].is_number(), "{field} of {row}");
        }
        let micros = ["micros_p50", "micros_p99", "micros_p999", "micros_max"]
            .map(|field| row[field].as_f64().unwrap());
        assert!(micros.is_sorted(), "{row}");
        assert!(row["peak_bytes"].as_u64().unwrap() > 1 << 20, "{row}");
    }
    for name in ["ycsb-a", "ycsb-e", "mixgraph", "deletescan"] {
        assert_eq!(row(&rows, name)["operations"].as_u64(), Some(1000), "{name}");
        assert!((1..=1000).contains(&row(&rows, name)["found"].as_u64().unwrap()), "{name}");
    }
    assert!(row(&rows, "readwhilewriting")["writes"].as_u64().unwrap() > 0);
    assert_eq!(row(&rows, "fillsync")["durability"], "durable");
    assert!(row(&rows, "overwrite")["object_bytes_written"]["flush"].is_u64());
    for words in [
        "budget 256.0 MiB",
        "machine",
        "1 in",
        "found 1,000 of 1,000",
        "memory     peak",
        "written",
        "space",
        "beside it",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_temporary_database_goes_and_a_named_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(["--json", "bench", "--num", "500"])
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(row(&run(&["--benchmarks", "fillseq,readseq"]), "readseq")["operations"].as_u64(), Some(500));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the temporary database is still there");

    let store = uri(&folder.path().join("db"));
    run(&["--store", &store, "--benchmarks", "filluniquerandom"]);
    let again = run(&["--store", &store, "--benchmarks", "readrandom", "--use-existing"]);
    assert_eq!(row(&again, "readrandom")["found"].as_u64(), Some(500));
    fails(
        &["bench", "--store", &store, "--num", "500", "--benchmarks", "fillseq"],
        2,
        &["--use-existing", &store],
    );
    assert_eq!(ok(&["db", "scan", &store, "--keyspace", "bench", "--keys-only"]).lines().count(), 500);
}

#[test]
fn settings_reach_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let arguments = [
        "bench",
        "--store",
        &store,
        "--num",
        "2000",
        "--benchmarks",
        "fillrandom",
        "--setting",
        "memtable_bytes=65536",
    ];
    let text = ok(&[
        &arguments[..],
        &["--keyspace-setting", "compression=zstd", "--durability", "durable", "--histogram"],
    ]
    .concat());
    for words in
        ["settings   memtable_bytes=65536; of the keyspace compression=zstd", "writes     durable", "99.99 %"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(ok(&["db", "keyspace", "list", &store]).contains("compression zstd"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, words) in [
        (&["--benchmarks", "fillseq,nope"][..], &["\"nope\"", "fillseq, fillrandom"][..]),
        (&["--threads", "0"], &["threads is 0", "1 to"]),
        (&["--threads", "100000"], &["threads is 100000", "256"]),
        (&["--num", "-5"], &["-5", "--num"]),
        (&["--num", "0"], &["num is 0"]),
        (&["--num", "99999999999999999999"], &["--num"]),
        (&["--reads", "0"], &["reads is 0"]),
        (&["--value-size", "1000000000000"], &["value-size"]),
        (&["--key-size", "1"], &["too short"]),
        (&["--compression-ratio", "7"], &["compression-ratio is 7"]),
        (&["--batch-size", "0"], &["batch-size is 0"]),
        (&["--duration", "0"], &["--duration"]),
        (&["--sample-every", "0"], &["sample-every"]),
        (&["--setting", "memory_bytes=5"], &["memory_bytes", "out of range"]),
        (&["--setting", "memory"], &["name=value"]),
        (&["--keyspace-setting", "compression=best"], &["compression", "lz4"]),
        (&["--keyspace-setting", "compression"], &["name=value"]),
        (&["--store", "nowhere"], &["no scheme", "file:///"]),
        (&["--use-existing"], &["--store"]),
        (&["--durability", "always"], &["always", "accepted"]),
    ] {
        fails(&[&["bench"], arguments].concat(), 2, words);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none/result.json");
    fails(&["bench", "--num", "10", "--json", file.to_str().unwrap()], 3, &["result.json"]);
}

#[test]
fn an_interrupted_run_tells_what_it_has_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args([
            "--json",
            "bench",
            "--benchmarks",
            "fillseq,readrandom",
            "--num",
            "1000",
            "--reads",
            "1000000000000",
        ])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has a temporary database: it is at work, and listens.
    while fs::read_dir(folder.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let listening = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() & 2 != 0
    };
    while !listening() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(json(&String::from_utf8(output.stdout).unwrap()).is_array());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the temporary database is still there");
}

#[test]
fn help_lists_every_benchmark() {
    let text = ok(&["bench", "--help"]);
    for name in ALL.split(',') {
        assert!(text.contains(&format!("\n  {name} ")), "{name}: {text}");
    }
    assert!(text.contains("Examples:"));
    let ran = tombolo(&["bench", "-h"]);
    assert!(ran.code == 0 && ran.stdout.contains("--json <FILE>"), "{}", ran.stdout);
}

#[test]
fn a_store_is_measured_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "mine", "kept"]);
    let before = ok(&["inspect", &store]);
    let file = folder.path().join("probe.json");
    let arguments = [
        "bench",
        "store",
        &store,
        "--sizes",
        "100,5000",
        "--depths",
        "1,2",
        "--seconds",
        "0.02",
        "--data-size",
        "1048576",
    ];
    let text = ok(&[&arguments[..], &["--json", file.to_str().unwrap()]].concat());
    let rows = json(&fs::read_to_string(&file).unwrap());
    for (request, figures) in
        [("write", 1), ("read", 4), ("put", 4), ("list", 1), ("delete", 1), ("append", 2), ("sync", 4)]
    {
        let found = rows.as_array().unwrap().iter().filter(|row| row["request"] == request).count();
        assert_eq!(found, figures, "{request}: {rows}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with(&format!("{request} "))).count(),
            figures,
            "{request}: {text}"
        );
    }
    let after = ok(&["inspect", &store]);
    let objects = |text: &str| {
        text.lines().filter(|line| !line.starts_with("lane") && !line.starts_with("segment")).count()
    };
    assert_eq!(objects(&before), objects(&after), "{after}");
    assert_eq!(ok(&["db", "get", &store, "mine"]), "kept\n");
    fails(&["bench", "store", &store, "--depths", "0"], 2, &["depths"]);
    fails(&["bench", "store", &store, "--sizes", "99999999999"], 2, &["16 MiB"]);
    fails(&["bench", "store", &store, "--seconds", "-1"], 2, &["seconds"]);
    fails(&["bench", "store", "nowhere"], 2, &["file:///"]);
    fails(&["bench", "store"], 2, &["URI"]);
}

/// Blocks of values that compress are in two parts, which has a name.
#[test]
fn inspect_names_how_every_block_of_a_table_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&[
        "bench",
        "--store",
        &store,
        "--benchmarks",
        "fillseq,flush",
        "--num",
        "5000",
        "--key-size",
        "16",
        "--value-size",
        "100",
    ]);
    let listed = ok(&["inspect", &store]);
    let table = listed
        .split_whitespace()
        .find(|word| word.contains("/table/"))
        .unwrap_or_else(|| panic!("no table: {listed}"));
    let text = ok(&["inspect", &store, table]);
    assert!(text.contains("lz4 in two parts") && !text.contains("unknown"), "{text}");
}

#[test]
fn latency_measures_every_part_beside_what_it_is_compared_with() {
    let text = ok(&[
        "--json",
        "bench",
        "latency",
        "--latency",
        "p50_us:200,p99_us:400,nodes:50,slow_node_us:2000",
        "--num",
        "30000",
    ]
    .into_iter()
    .chain(["--seconds", "0.2", "--in-flight", "1,2", "--rounds", "1"])
    .collect::<Vec<_>>());
    let rows: Value = serde_json::from_str(&text).unwrap();
    let of = |measure: &str| {
        rows.as_array().unwrap().iter().filter(|row| row["measure"] == measure).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("raw read").len(), of("get miss").len(), of("get miss, doubled").len()),
        (2, 2, 1),
        "{rows}"
    );
    for row in of("get miss").into_iter().chain(of("raw read")) {
        assert!(row["calls"].as_u64().unwrap() > 0 && row["micros_p50"].as_f64().unwrap() >= 150.0, "{rows}");
    }
    let extra = of("extra requests")[0]["ratio"].as_f64().unwrap();
    assert!((0.0..=0.5).contains(&extra), "{extra}");
    for measure in ["multi-get", "seek + 10"] {
        let ratio = of(measure)[1]["ratio"].as_f64().unwrap();
        assert!(ratio >= 0.0 && of(measure)[1]["paper_ratio"].as_f64().unwrap() < 0.5, "{rows}");
    }
    assert!(of("write in order")[0]["ratio"].as_f64().unwrap() > 0.0, "{rows}");
    fails(&["bench", "latency", "--latency", "s4"], 2, &["s3 or cluster"]);
    fails(&["bench", "latency", "--seconds", "0"], 2, &["seconds"]);
}
