//! `tombolo db import`, `export`, `levels`, `stats`, `flush`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{fails, json, ok, uri, with_input};

#[test]
fn what_is_exported_is_imported_again_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("a"));
    let mut input = String::new();
    for number in 0..3000 {
        input += &format!("{{\"key\":\"k{number:05}\",\"value\":\"value {number} \\u00e9 \\\"\\n\"}}\n");
    }
    input += "{\"key\":{\"hex\":\"ff00\"},\"value\":{\"hex\":\"80\"}}\r\n\n{\"value\":\"\",\"key\":\"z\"}";
    let (code, text, message) =
        with_input(&["--json", "db", "import", &store, "--batch-bytes", "1000"], input.as_bytes());
    assert_eq!(code, 0, "{message}");
    assert_eq!(json(&text)["imported"].as_u64(), Some(3002));

    let exported = ok(&["db", "export", &store]);
    assert_eq!(exported.lines().count(), 3002);
    assert!(exported.ends_with(
        "{\"key\":\"z\",\"value\":\"\"}\n{\"key\":{\"hex\":\"ff00\"},\"value\":{\"hex\":\"80\"}}\n"
    ));
    for format in ["ndjson", "tsv"] {
        let lines = ok(&["db", "export", &store, "--format", format]);
        let other = uri(&folder.path().join(format));
        let (code, text, message) = with_input(
            &["db", "import", &other, "--format", format, "--keyspace", "k", "--create-keyspace"],
            lines.as_bytes(),
        );
        assert!(code == 0 && text.contains("imported 3,002 entries"), "{text}{message}");
        assert_eq!(ok(&["db", "export", &other, "--keyspace", "k"]), exported, "{format}");
    }
    // A scan prints what import reads.
    assert_eq!(ok(&["db", "export", &store, "--format", "tsv"]), ok(&["db", "scan", &store]));
}

#[test]
fn files_are_named_and_their_ending_tells_the_form() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(folder.path().join("in.tsv"), "a\t1\nb\t2\nc\t3\n").unwrap();
    ok(&["db", "import", &store, "--file", &path("in.tsv")]);
    let text = ok(&["db", "export", &store, "--file", &path("out.ndjson"), "--from", "b"]);
    assert!(text.contains("exported 2 entries"), "{text}");
    assert_eq!(
        fs::read_to_string(path("out.ndjson")).unwrap(),
        "{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":\"c\",\"value\":\"3\"}\n"
    );
    assert_eq!(ok(&["db", "export", &store, "--prefix", "a", "--format", "tsv"]), "a\t1\n");
    fails(&["db", "export", &store, "--file", &path("out.ndjson")], 2, &["out.ndjson"]);
    fails(&["db", "import", &store, "--file", &path("none")], 3, &["none"]);
}

#[test]
fn a_wrong_line_is_named_and_what_came_before_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for (arguments, line, words) in [
        (
            &[][..],
            "{\"key\":\"c\"}",
            &["line 3 of standard input", "\"value\"", "the 2 entries before it are written"][..],
        ),
        (&[][..], "not json", &["line 3", "no JSON"]),
        (&["--format", "tsv"], "no tab", &["line 3", "tab"]),
    ] {
        let good = if arguments.is_empty() {
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n"
        } else {
            "a\t1\nb\t2\n"
        };
        let (code, text, message) = with_input(
            &[&["db", "import", &store], arguments].concat(),
            format!("{good}{line}\n").as_bytes(),
        );
        assert!(code == 2 && text.is_empty(), "{code} {text}{message}");
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
        assert_eq!(ok(&["db", "scan", &store]), "a\t1\nb\t2\n");
    }
    let long = format!("{}\tv\n", "k".repeat(70_000));
    let (code, _, message) = with_input(&["db", "import", &store, "--format", "tsv"], long.as_bytes());
    assert!(
        code == 2
            && message.contains("line 1 of")
            && message.contains("65535")
            && message.contains("nothing was written"),
        "{message}"
    );
    let (code, _, message) = with_input(&["db", "import", &store, "--keyspace", "none"], b"");
    assert!(code == 3 && message.contains("--create-keyspace"), "{message}");
    let (code, _, message) = with_input(&["db", "import", &store, "--batch-bytes", "0"], b"");
    assert!(code == 2 && message.contains("--batch-bytes"), "{message}");
}

#[test]
fn an_import_that_waits_for_input_sees_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["db", "import", &store, "--format", "tsv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\t1\n").unwrap();
    input.flush().unwrap();
    // Once the database is there, it listens: it does so before it opens.
    while !folder.path().join("db").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    drop(input);
    assert!(["", "a\t1\n"].contains(&&*ok(&["db", "scan", &store])));
}

#[test]
fn levels_and_stats_tell_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let input: String = (0..500).map(|number| format!("key{number:04}\tvalue {number}\n")).collect();
    with_input(&["db", "import", &store, "--format", "tsv"], input.as_bytes());
    assert!(ok(&["db", "levels", &store]).contains("keyspace default: no tables"));
    let flushed = json(&ok(&["--json", "db", "flush", &store]));
    assert_eq!((flushed["tables_before"].as_u64(), flushed["tables"].as_u64()), (Some(0), Some(1)));
    let levels = json(&ok(&["--json", "db", "levels", &store, "--tables"]));
    let keyspace = &levels["keyspaces"][0];
    assert_eq!(
        (keyspace["name"].as_str(), keyspace["levels"][0]["entries"].as_u64()),
        (Some("default"), Some(500))
    );
    assert_eq!(
        (keyspace["tables"][0]["first_key"].as_str(), keyspace["tables"][0]["last_key"].as_str()),
        (Some("key0000"), Some("key0499"))
    );
    let table = keyspace["tables"][0]["name"].as_str().unwrap();
    assert!(ok(&["inspect", &store, table]).contains("500"));
    // Looking at the levels has claimed nothing, nor has looking at the statistics.
    let epoch = |text: String| json(&text)["epoch"].as_u64().unwrap();
    let before = epoch(ok(&["--json", "db", "levels", &store]));
    assert_eq!(epoch(ok(&["--json", "db", "levels", &store])), before);
    let stats = json(&ok(&["--json", "db", "stats", &store]));
    assert_eq!((stats["tables"].as_u64(), stats["epoch"].as_u64()), (Some(1), Some(before)), "{stats}");
    let opened = |purpose: &str, kind: &str| {
        let requests = stats["requests"].as_array().unwrap().iter();
        requests
            .filter(|one| one["purpose"] == purpose && one["kind"] == kind)
            .map(|one| one["requests"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert!(opened("manifest", "put") == 1 && opened("open", "list") >= 1, "{stats}");
    assert!(stats["cost"].is_null(), "a directory is not paid by the request: {stats}");
    for words in ["tables      1 of", "by a look", "log", "epoch", "manifest   put", "on this machine"] {
        assert!(ok(&["db", "stats", &store]).contains(words), "{words}");
    }
    fails(&["db", "levels", &store, "--keyspace", "none"], 3, &["none"]);
}

#[test]
fn properties_are_listed_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "k", "v"]);
    ok(&["db", "flush", &store]);
    let all = json(&ok(&["--json", "db", "properties", &store]));
    assert!(all.as_array().unwrap().len() > 20, "{all}");
    for property in all.as_array().unwrap() {
        assert!(
            property["name"].is_string() && property["unit"].is_string() && property["help"].is_string(),
            "{property}"
        );
    }
    // Those of the flash cache are told where it is.
    let page =
        concat!(include_str!("../../../../docs/properties.md"), include_str!("../../../../docs/tuning.md"));
    for property in all.as_array().unwrap() {
        let name = property["name"].as_str().unwrap();
        assert!(page.contains(&format!("`{name}`")), "the pages do not say what to do about {name}");
    }
    let failure = all.as_array().unwrap().iter().find(|property| property["name"] == "failure").unwrap();
    assert_eq!(failure["value"], "", "reading only is no failure");
    let one = ok(&["db", "properties", &store, "memory-budget"]);
    assert!(one.contains("268435456") && one.contains("bytes") && one.lines().count() == 1, "{one}");
    fails(&["db", "properties", &store, "memory-budge"], 2, &["memory-budge", "memory-budget"]);
    fails(&["db", "properties", &uri(&folder.path().join("none"))], 3, &[]);
}

/// What the engine takes at once bounds what import writes at once, whatever --batch-bytes says.
#[test]
fn long_values_and_many_short_entries_are_imported_with_the_largest_batches() {
    let folder = tempfile::tempdir().unwrap();
    let largest = ["--format", "tsv", "--batch-bytes", "67108864"];
    let long = "x".repeat(50 << 20);
    let input = format!("a\t{long}\nb\t{long}\n");
    let many: String = (0..2_600_000).map(|number| format!("{number:07}\t\n")).collect();
    let mut inputs = vec![("long", input, "2 entries")];
    // They take as long as forty other tests.
    if std::env::var_os("TOMBOLO_DEEP").is_some() {
        inputs.push(("many", many, "2,600,000 entries"));
    }
    for (name, input, entries) in inputs {
        let store = uri(&folder.path().join(name));
        let (code, text, message) =
            with_input(&[&["db", "import", &store][..], &largest].concat(), input.as_bytes());
        assert!(code == 0 && text.contains(entries), "{name}: {text}{message}");
    }
    let store = uri(&folder.path().join("bound"));
    let (code, _, message) = with_input(&["db", "import", &store, "--batch-bytes", "67108865"], b"");
    assert!(code == 2 && message.contains("--batch-bytes") && message.contains("67108864"), "{message}");
    assert!(!folder.path().join("bound").exists());
}

#[test]
fn a_line_that_is_too_long_says_how_many_entries_before_it_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let input = format!("a\t1\nb\t2\n\n{}", "x".repeat((320 << 20) + (1 << 20)));
    let (code, _, message) = with_input(&["db", "import", &store, "--format", "tsv"], input.as_bytes());
    assert!(
        code == 2 && message.contains("line 4") && message.contains("the 2 entries before it are written"),
        "{message}"
    );
    assert_eq!(ok(&["db", "scan", &store]), "a\t1\nb\t2\n");
}

/// A backup says when values end, and so do tables; a form that cannot say it is refused rather
/// than leaving it out.
#[test]
fn an_export_says_when_values_end() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (uri(&folder.path().join("a")), uri(&folder.path().join("b")));
    let parts = folder.path().join("parts").to_str().unwrap().to_owned();
    ok(&["db", "create", &from]);
    ok(&["db", "keyspace", "create", &from, "sessions", "--keyspace-setting", "ttl=1h"]);
    ok(&["db", "put", &from, "--keyspace", "sessions", "ada", "1"]);
    let export = |place: &str| ok(&["db", "export", place, "--keyspace", "sessions"]);
    let lines = export(&from);
    assert!(lines.contains("\"expires_ms\":"), "{lines}");
    let import = ["db", "import", &to, "--keyspace", "sessions", "--create-keyspace"];
    ok(&["db", "create", &to]);
    assert_eq!(with_input(&import, lines.as_bytes()).0, 0);
    assert_eq!(export(&to), lines, "what ends, ends at the same time elsewhere");
    // What has ended lets nothing come back that was there before.
    let past = "{\"key\":\"bob\",\"value\":\"1\"}\n{\"key\":\"bob\",\"value\":\"2\",\"expires_ms\":1}\n";
    let (code, shown, _) = with_input(&import, past.as_bytes());
    assert!(code == 0 && shown.contains("1 of them had ended"), "{shown}");
    assert_eq!(export(&to), lines);
    // That of a merge neither, nor is it an operand of what comes after it.
    ok(&["db", "keyspace", "create", &to, "words", "--operator", "append_comma"]);
    let words = ["--json", "db", "import", &to, "--keyspace", "words"];
    let past = "{\"key\":\"bob\",\"value\":\"1\"}\n{\"key\":\"bob\",\"merge\":\"2\",\"expires_ms\":1}\n\
                {\"key\":\"eve\",\"value\":\"1\",\"expires_ms\":1}\n{\"key\":\"eve\",\"merge\":\"3\"}\n";
    let (code, shown, message) = with_input(&words, past.as_bytes());
    assert!(code == 0 && json(&shown)["ended"] == 2 && json(&shown)["imported"] == 4, "{shown}{message}");
    let found = ok(&["db", "export", &to, "--keyspace", "words"]);
    assert_eq!(found, "{\"key\":\"eve\",\"value\":\"3\"}\n");
    let tsv = ["db", "export", &from, "--keyspace", "sessions", "--format", "tsv"];
    fails(&tsv, 2, &["export as ndjson"]);
    ok(&["db", "export-tables", &from, &parts, "--keyspace", "sessions"]);
}

#[test]
fn an_export_that_fails_leaves_no_file_that_seems_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let out = folder.path().join("out.tsv").to_str().unwrap().to_owned();
    let lines: String = (0..20_000).map(|number| format!("key{number:05}\t{}\n", "v".repeat(100))).collect();
    with_input(&["db", "import", &store, "--format", "tsv"], lines.as_bytes());
    ok(&["db", "flush", &store]);
    let table = fs::read_dir(folder.path().join("db/0000000000000001/table"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let sound = fs::read(&table).unwrap();
    let mut bytes = sound.clone();
    bytes[sound.len() / 2] ^= 1;
    fs::write(&table, bytes).unwrap();
    fails(&["db", "export", &store, "--file", &out], 5, &["damaged"]);
    assert!(!fs::exists(&out).unwrap());
    fs::write(&table, sound).unwrap();
    ok(&["db", "export", &store, "--file", &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), lines);
}

/// A place of exported tables has those and their index, and nothing of how they were made; of an
/// export that fails nothing is left.
#[test]
fn an_export_of_tables_leaves_its_tables_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let names = |name: &str| {
        let names = fs::read_dir(folder.path().join(name)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let store = uri(&folder.path().join("db"));
    let lines: String = (0..20_000).map(|number| format!("key{number:05}\t{}\n", "v".repeat(100))).collect();
    with_input(&["db", "import", &store, "--format", "tsv"], lines.as_bytes());
    ok(&["db", "flush", &store]);
    ok(&["db", "export-tables", &store, &path("parts")]);
    assert_eq!(names("parts"), ["part-00001.table", "tables.json"]);

    fails(&["db", "export-tables", &store, &path("none"), "--keyspace", "nosuch"], 3, &["nosuch"]);
    assert!(!folder.path().join("none").exists());
    let table = fs::read_dir(folder.path().join("db/0000000000000001/table")).unwrap().next().unwrap();
    let table = table.unwrap().path();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    for (place, stays) in [("new", false), ("mine", true)] {
        let export = ["db", "export-tables", &store, &path(place), "--table-bytes", "32KiB"];
        fails(&export, 5, &["damaged"]);
        assert_eq!(folder.path().join(place).exists(), stays);
    }
    assert_eq!(names("mine"), [""; 0]);
}

/// A keyspace goes from one database into another as tables, with its settings; faults
/// of them are told, and nothing is taken.
#[test]
fn a_keyspace_is_exported_as_tables_and_imported_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (from, to, parts) = (uri(&folder.path().join("a")), uri(&folder.path().join("b")), path("parts"));
    let mut input = String::new();
    for number in 0..5000 {
        input += &format!("k{number:05}\tvalue {number}\n");
    }
    ok(&["db", "create", &from]);
    ok(&["db", "keyspace", "create", &from, "old", "--keyspace-setting", "filter_bits=12"]);
    let import = ["db", "import", &from, "--format", "tsv", "--keyspace", "old"];
    assert_eq!(with_input(&import, input.as_bytes()).0, 0);
    let export =
        ["--json", "db", "export-tables", &from, &parts, "--keyspace", "old", "--table-bytes", "32KiB"];
    let exported = json(&ok(&export));
    assert_eq!(exported["entries"].as_u64(), Some(5000));
    assert!(exported["tables"].as_u64().unwrap() > 1, "{exported}");
    fails(&export, 2, &["holds exported tables already"]);
    let imported = json(&ok(&["--json", "db", "import-tables", &to, &parts]));
    assert_eq!(
        (imported["entries"].as_u64(), imported["tables"].as_u64()),
        (Some(5000), exported["tables"].as_u64())
    );
    let all = |place: &str| ok(&["db", "export", place, "--keyspace", "old"]);
    assert_eq!(all(&from), all(&to));
    assert!(ok(&["db", "keyspace", "list", &to]).contains("filter_bits 12"));
    // A table by itself, over the content, and in its place.
    let first = folder.path().join("parts/part-00001.table");
    ok(&["db", "put", &to, "zzz", "1"]);
    let first = first.to_str().unwrap();
    assert!(ok(&["inspect", first]).contains("table"));
    ok(&["db", "ingest", &to, first]);
    assert_eq!(ok(&["db", "get", &to, "zzz"]), "1\n");
    ok(&["db", "ingest", &to, first, "--exchange"]);
    fails(&["db", "get", &to, "zzz"], 3, &["zzz"]);
    fails(&["db", "ingest", &to, first, first], 2, &["may hold the same keys"]);
    ok(&["db", "ingest", &to, first, first, "--ordered"]);
    ok(&["db", "verify", &to]);
    fs::write(folder.path().join("text"), "no table").unwrap();
    fails(&["db", "ingest", &to, &path("text")], 2, &["no table that can be ingested"]);
    fails(&["db", "ingest", &to, &path("none")], 3, &["none"]);
    fails(&["db", "ingest", &to, first, "--keyspace", "nowhere"], 3, &["nowhere"]);
    assert_eq!(json(&ok(&["--json", "db", "writer", &to]))["state"], "closed");
    fails(&["db", "import-tables", &to, &path("nowhere")], 3, &["tables.json"]);
}

/// Keeps the longest.
struct Longest;

impl tombolo::AssociativeOperator for Longest {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Result<(), tombolo::OperatorError> {
        if newer.len() > older.len() {
            newer.clone_into(older);
        }
        Ok(())
    }
}

/// Merges whose operator only some program has are exported as they are, and are what they were
/// where that program reads them.
#[test]
fn merges_are_exported_without_their_operator() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| uri(&folder.path().join(name));
    let parts = folder.path().join("parts").to_str().unwrap().to_owned();
    let (from, to, lines_to) = (place("a"), place("b"), place("c"));
    let name = tombolo::OperatorName::new("longest", 1).unwrap();
    let open = |place: &str| {
        let longest = tombolo::Operator::associative(Longest);
        tombolo::Db::builder(place).operator(name.clone(), longest).open().wait().unwrap()
    };
    let options =
        tombolo::KeyspaceOptions { operator: Some(name.clone()), ..tombolo::KeyspaceOptions::default() };
    let db = open(&from);
    let keys = db.create_keyspace("k", options.clone()).wait().unwrap();
    for number in 0..300 {
        keys.put(format!("{number:03}"), "value").wait().unwrap();
    }
    keys.merge("000", "longer value").wait().unwrap();
    keys.merge("000", "short").wait().unwrap();
    keys.merge("new", "alone").wait().unwrap();
    db.close().wait().unwrap();
    let export = ["db", "export-tables", &from, &parts, "--keyspace", "k"];
    fails(&export, 2, &["--keep-merges"]);
    let export = [&export[..], &["--keep-merges", "--table-bytes", "2KiB"]].concat();
    ok(&export);
    // Who makes the keyspace has the operator; who brings tables into it need not.
    fails(&["db", "import-tables", &place("d"), &parts], 2, &["longest"]);
    let db = open(&to);
    db.create_keyspace("k", options.clone()).wait().unwrap();
    db.close().wait().unwrap();
    ok(&["db", "import-tables", &to, &parts]);
    let lines_from = ["db", "export", &from, "--keyspace", "k"];
    fails(&lines_from, 2, &["--keep-merges"]);
    let lines = ok(&[&lines_from[..], &["--keep-merges"]].concat());
    assert!(
        lines.contains(r#"{"key":"new","delete":true}"#) && lines.contains(r#""merge":"alone""#),
        "{lines}"
    );
    fails(&[&lines_from[..], &["--keep-merges", "--format", "tsv"]].concat(), 2, &["ndjson"]);
    let check = |place: &str| {
        let db = open(place);
        let keys = db.keyspace("k").unwrap();
        let value = |key: &str| keys.get(key).wait().unwrap().map(|value| value.to_vec());
        assert_eq!(value("000").as_deref(), Some(&b"longer value"[..]));
        assert_eq!(value("001").as_deref(), Some(&b"value"[..]));
        assert_eq!(value("new").as_deref(), Some(&b"alone"[..]));
        assert_eq!(keys.scan::<&[u8]>(..).count(), 301);
        db.close().wait().unwrap();
    };
    check(&to);
    // Another operator is refused, and nothing is taken.
    ok(&["db", "keyspace", "create", &to, "other", "--keyspace-setting", "operator=max@1"]);
    fails(&["db", "import-tables", &to, &parts, "--keyspace", "other"], 2, &["longest@1"]);
    assert_eq!(ok(&["db", "export", &to, "--keyspace", "other"]), "");
    // Lines of merges are for whom has the operator: this command has not.
    let db = open(&lines_to);
    db.create_keyspace("k", options).wait().unwrap();
    db.close().wait().unwrap();
    let import = ["db", "import", &lines_to, "--keyspace", "k"];
    let (code, _, message) = with_input(&import, lines.as_bytes());
    assert!(code != 0 && message.contains("longest"), "{message}");
}
