//! What works.

use std::io::Read;
use std::process::{Command, Stdio};

use super::{fails, json, ok, tombolo, uri};

#[test]
fn a_key_goes_in_and_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "1", "two books"]);
    assert_eq!(ok(&["db", "get", &store, "1"]), "two books\n");
    ok(&["db", "put", &store, "1", "a lamp"]);
    assert_eq!(ok(&["db", "get", &store, "1", "--raw"]), "a lamp");
    ok(&["db", "delete", &store, "1"]);
    fails(&["db", "get", &store, "1"], 3, &["the key 1 has no value"]);
    ok(&["db", "put", &store, "1", "a chair"]);
    ok(&["db", "delete", &store, "1", "--single"]);
    fails(&["db", "get", &store, "1"], 3, &["the key 1 has no value"]);
}

/// A keyspace with an operator merges; one that has none says what to do.
#[test]
fn a_value_is_merged_into() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let create = |name: &'static str, operator: &'static str| {
        ["db", "keyspace", "create", &*store, name, "--operator", operator].map(str::to_owned)
    };
    let words = create("words", "append_comma");
    ok(&words.each_ref().map(String::as_str));
    for word in ["red", "green"] {
        ok(&["db", "merge", &store, "--keyspace", "words", "colours", word]);
    }
    assert_eq!(ok(&["db", "get", &store, "--keyspace", "words", "colours"]), "red,green\n");
    let table = json(ok(&["--json", "db", "keyspace", "list", &store]).lines().last().unwrap());
    assert_eq!(table["settings"]["operator"], "append_comma@1", "{table}");
    fails(&["db", "merge", &store, "colours", "red"], 2, &["names no merge operator", "set its operator"]);
    let nobody = create("more", "nobody");
    fails(&nobody.each_ref().map(String::as_str), 2, &["\"nobody\" of version 1 is not there"]);
}

#[test]
fn a_write_with_a_condition_says_what_was_found_instead() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let put = |value: &str, condition: &[&str]| {
        json(&ok(&[&["--json", "db", "put", &store, "lock", value][..], condition].concat()))
    };
    let first = put("mine", &["--if-absent"]);
    fails(&["db", "put", &store, "lock", "yours", "--if-absent"], 10, &["nothing was written", "mine"]);
    let closed = || assert_eq!(json(&ok(&["--json", "db", "writer", &store]))["state"], "closed");
    closed();
    let found = json(&ok(&["--json", "db", "get", &store, "lock"]));
    assert_eq!((&found["value"], &found["version"]), (&"mine".into(), &first["version"]));
    let version = found["version"].to_string();
    put("still mine", &["--if-version", &version]);
    fails(&["db", "delete", &store, "lock", "--if-version", &version], 10, &["still mine"]);
    closed();
    fails(&["db", "delete", &store, "lock", "--if-equal", "mine"], 10, &["still mine"]);
    let refused = fails(&["--json", "db", "put", &store, "none", "v", "--if-present"], 10, &["NotMet"]);
    let refused = json(&refused)["error"].clone();
    assert_eq!((&refused["found"], &refused["key"]), (&serde_json::Value::Null, &"none".into()));
    ok(&["db", "delete", &store, "lock", "--if-equal", "still mine"]);
    put("again", &["--if-version", "0"]);
    fails(&["db", "put", &store, "lock", "v", "--if-absent", "--if-present"], 2, &["cannot be used with"]);
}

#[test]
fn scans_have_bounds_prefixes_limits_and_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for key in ["a1", "a2", "b1", "b2", "c1"] {
        ok(&["db", "put", &store, key, "v"]);
    }
    let scan = |arguments: &[&str]| {
        let text = ok(&[&["db", "scan", &store, "--keys-only"], arguments].concat());
        text.lines().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(scan(&[]), "a1 a2 b1 b2 c1");
    assert_eq!(scan(&["--prefix", "b"]), "b1 b2");
    assert_eq!(scan(&["--from", "a2", "--to", "b2"]), "a2 b1");
    assert_eq!(scan(&["--from", "a2", "--to", "b2", "--reverse"]), "b1 a2");
    assert_eq!(scan(&["--reverse", "--limit", "2"]), "c1 b2");
    assert_eq!(scan(&["--prefix", "x"]), "");
    assert_eq!(ok(&["--json", "db", "scan", &store, "--limit", "1"]), "{\"key\":\"a1\",\"value\":\"v\"}\n");
    assert_eq!(ok(&["db", "scan", &store, "--limit", "1"]), "a1\tv\n");
}

#[test]
fn keyspaces_are_made_listed_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "create", &store]);
    fails(&["db", "create", &store], 2, &["AlreadyExists"]);
    ok(&["db", "keyspace", "create", &store, "orders", "--keyspace-setting", "compression=zstd"]);
    fails(&["db", "keyspace", "create", &store, "orders"], 2, &["orders", "AlreadyExists"]);
    ok(&["db", "put", &store, "--keyspace", "orders", "1", "x"]);
    fails(&["db", "get", &store, "1"], 3, &["no value in keyspace default"]);
    let listed = ok(&["db", "keyspace", "list", &store]);
    assert!(
        listed.contains("default") && listed.contains("orders") && listed.contains("compression zstd"),
        "{listed}"
    );
    let set = ok(&["db", "keyspace", "set", &store, "orders", "filter_bits=0", "block_bytes=64KiB"]);
    assert!(set.contains("compression zstd") && set.contains("filter_bits 0"), "{set}");
    let listed = ok(&["--json", "db", "keyspace", "list", &store]);
    let orders = listed.lines().map(json).find(|line| line["name"] == "orders").unwrap();
    assert_eq!(
        (orders["settings"]["filter_bits"].as_str(), orders["settings"]["block_bytes"].as_str()),
        (Some("0"), Some("65536")),
        "{orders}"
    );
    for (setting, words) in [
        ("filter_bits=99", &["filter_bits", "0 to 30"][..]),
        ("speed=9", &["speed", "compression"]),
        ("speed", &["name=value"]),
    ] {
        fails(&["db", "keyspace", "set", &store, "orders", "compression=none", setting], 2, words);
    }
    assert!(ok(&["db", "keyspace", "list", &store]).contains("compression zstd"), "all or none");
    fails(&["db", "keyspace", "set", &store, "none", "filter_bits=1"], 3, &["none"]);
    fails(&["db", "keyspace", "set", &store, "orders"], 2, &["NAME=VALUE"]);
    ok(&["db", "keyspace", "drop", &store, "orders"]);
    fails(&["db", "keyspace", "drop", &store, "default"], 2, &["default"]);
    fails(&["db", "get", &store, "--keyspace", "orders", "1"], 3, &["orders"]);
    fails(
        &["db", "keyspace", "create", &store, "x", "--keyspace-setting", "compression=best"],
        2,
        &["compression", "none, lz4 or zstd"],
    );
}

#[test]
fn verify_and_compact_read_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for number in 0..20 {
        ok(&["db", "put", &store, &format!("k{number}"), "value"]);
    }
    ok(&["db", "compact", &store]);
    assert_eq!(ok(&["db", "get", &store, "k7"]), "value\n");
    let report = json(&ok(&["--json", "db", "verify", &store]));
    assert!(report["tables"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(report["damage"].as_array().unwrap().len(), 0);
    assert!(ok(&["db", "verify", &store]).contains("records of the manifest"));
}

#[test]
fn destroying_asks_first_and_ends_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "1", "x"]);
    fails(&["db", "destroy", &store], 2, &["--yes"]);
    let destroyed = json(&ok(&["--json", "db", "destroy", &store, "--yes"]));
    assert!(
        destroyed["destroyed"] == true && destroyed["deleted"] == true && destroyed["readers"] == 0,
        "{destroyed}"
    );
    fails(&["db", "destroy", &store, "--yes"], 3, &[]);
    fails(&["db", "get", &store, "1"], 3, &[]);
    ok(&["db", "put", &store, "2", "y"]);
    assert_eq!(ok(&["db", "scan", &store]), "2\ty\n");
}

#[test]
fn explain_says_what_survives_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let text = ok(&["explain", &store]);
    for word in ["form=written", "form=mapped", "accepted", "durable", "kill -9", "SIGBUS"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let found = json(&ok(&["--json", "explain", &store, &format!("{store}?form=written")]));
    assert_eq!(found["logs"].as_array().unwrap().len(), 1);
    assert!(ok(&["explain", "mem://x"]).contains("process"));
    assert!(!folder.path().join("db").exists(), "explaining made a directory");
}

/// Named files, as RocksDB keeps them by its plugin.
#[test]
fn explain_says_what_named_files_take() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let env = tombolo::Env::real();
    env.block_on(async {
        let db = tombolo::Db::builder(store.as_str()).application_logs(2).open().await.unwrap();
        let files =
            tombolo_files::Files::mount(db, &env, tombolo_files::FilesOptions::default()).await.unwrap();
        for (name, bytes) in [("/1.sst", 5000), ("/2.log", 300), ("/3.log", 40)] {
            let file = files.create(name.as_bytes()).await.unwrap();
            files.append(&file, &vec![7; bytes]).await.unwrap();
            files.sync(&file).await.unwrap();
        }
        files.close().await.unwrap();
    });
    let found = json(&ok(&["--json", "explain", "--files", &format!("{store}?form=written")]));
    let of = |kind: &str| (found["files"][kind]["files"].as_u64(), found["files"][kind]["bytes"].as_u64());
    assert_eq!(
        [of("objects"), of("logs"), of("records")],
        [(1, 5000), (2, 340), (0, 0)].map(|(a, b)| (Some(a), Some(b)))
    );
    assert!(ok(&["explain", "--files", &store]).contains("2 files"));
    assert!(!ok(&["explain", &store]).contains("named files"));
}

#[test]
fn inspect_tells_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "key-in-table", "x"]);
    ok(&["db", "compact", &store]);
    ok(&["db", "put", &store, "key-in-log", "x"]);
    let listed = ok(&["inspect", &store]);
    for kind in ["incarnation", "record", "table", "lane", "segment"] {
        assert!(listed.lines().any(|line| line.starts_with(kind)), "{kind}: {listed}");
    }
    assert!(ok(&["inspect", &store, "tables", "--entries"]).contains("key-in-table"));
    assert!(ok(&["inspect", &store, "log", "--entries"]).contains("key-in-log"));
    let manifest = ok(&["inspect", &store, "manifest"]);
    assert!(
        manifest.contains("claim") && manifest.contains("table added") && manifest.contains("log named"),
        "{manifest}"
    );
    let table = listed
        .lines()
        .find(|line| line.starts_with("table"))
        .unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .to_owned();
    let by_name = ok(&["inspect", &store, &table]);
    let by_path = ok(&["inspect", folder.path().join("db").join(&table).to_str().unwrap()]);
    assert_eq!(by_name.lines().skip(1).collect::<Vec<_>>(), by_path.lines().skip(1).collect::<Vec<_>>());
    assert_eq!(json(&ok(&["--json", "inspect", &store, &table]))["kind"], "table");
}

#[test]
fn inspect_tells_logs_as_objects_checkpoints_and_pins() {
    let folder = tempfile::tempdir().unwrap();
    let (store, logs) = (uri(&folder.path().join("db")), folder.path().join("logs"));
    ok(&["db", "put", &store, "key-in-log", "x", "--log", "objects://"]);
    ok(&["db", "checkpoint", "create", &store, "monday", "--log", "objects://"]);
    ok(&["db", "put", &store, "key-in-log", "y", "--log", "objects://"]);
    let listed = ok(&["inspect", &store]);
    for kind in ["logobject", "checkpoint", "pin"] {
        assert!(listed.lines().any(|line| line.starts_with(kind)), "{kind}: {listed}");
    }
    assert!(!listed.contains("foreign"), "{listed}");
    let text = ok(&["inspect", &store, "log", "--entries"]);
    assert!(
        text.contains("header of data") && text.contains("seal") && text.contains("key-in-log"),
        "{text}"
    );
    let text = ok(&["inspect", &store, "checkpoints"]);
    assert!(
        text.contains("name monday") && text.contains("table added") && text.contains("checksum right"),
        "{text}"
    );
    assert!(ok(&["inspect", &store, "pins"]).contains("kind checkpoint"));
    let life = "0000000000000001/";
    assert!(ok(&["inspect", &store, life]).lines().count() > text.lines().count());
    fails(&["inspect", &store, "0000000000000002/"], 3, &["0000000000000002/"]);
    let checkpoint = std::fs::read_dir(folder.path().join("db").join(life).join("checkpoint"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let sound = std::fs::read(&checkpoint).unwrap();
    for at in (0..sound.len()).step_by(17) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        std::fs::remove_file(&checkpoint).unwrap();
        std::fs::write(&checkpoint, bytes).unwrap();
        fails(&["inspect", &store, "checkpoints"], 5, &["checkpoint"]);
    }

    // What cannot be listed is told, and not left out.
    std::fs::create_dir_all(&logs).unwrap();
    let long = logs.join("0000000000000001").join("log");
    std::fs::create_dir_all(long.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&long, &long).unwrap();
    let message = tombolo(&["inspect", &uri(&logs), "log"]);
    assert!(
        message.code != 0 && message.stderr.contains("0000000000000001/log"),
        "{}{}",
        message.stdout,
        message.stderr
    );
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let value = "x".repeat(100_000);
    for key in ["1", "2", "3", "4", "5", "6"] {
        ok(&["db", "put", &store, key, &value]);
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["db", "scan", &store])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {message}");
    assert!(message.is_empty(), "{message}");
}

#[test]
fn help_teaches() {
    for arguments in [
        vec!["--help"],
        vec!["demo", "--help"],
        vec!["db", "--help"],
        vec!["db", "scan", "--help"],
        vec!["inspect", "--help"],
    ] {
        let text = ok(&arguments);
        assert!(text.contains("Usage:") && text.len() > 300, "{arguments:?}: {text}");
    }
    assert!(ok(&["--help"]).contains("Exit codes:"));
}
