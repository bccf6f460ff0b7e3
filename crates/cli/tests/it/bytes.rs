//! Keys and values of any bytes: stored as typed, shown without doubt, and the same in the JSON of
//! all commands.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::{Ran, fails, json, ok, ran, tombolo, uri, with_input};

fn with_bytes(arguments: &[&[u8]]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(arguments.iter().map(|bytes| OsStr::from_bytes(bytes)));
    ran(command, &["bytes"])
}

#[test]
fn bytes_are_stored_as_they_are_typed() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let path = r"C:\new\table";
    ok(&["db", "put", &store, "p", path]);
    assert_eq!(ok(&["db", "get", &store, "p"]), format!("{path}\n"));
    assert_eq!(ok(&["db", "get", &store, "p", "--raw"]), path);
    let got = json(&ok(&["--json", "db", "get", &store, "p"]));
    assert_eq!((&got["key"], &got["value"], &got["version"]), (&json!("p"), &json!(path), &json!(1)));
    assert_eq!(ok(&["db", "scan", &store]), format!("p\t{path}\n"));
    // An argument need not be UTF-8.
    assert_eq!(with_bytes(&[b"db", b"put", store.as_bytes(), b"\xff", b"\x80\n"]).code, 0);
    assert_eq!(with_bytes(&[b"db", b"get", store.as_bytes(), b"\xff"]).stdout, "$'\\x80\\n'\n");
    assert_eq!(
        ok(&["--json", "db", "scan", &store, "--reverse", "--limit", "1"]).trim(),
        r#"{"key":{"hex":"ff"},"value":{"hex":"800a"}}"#
    );
    assert_eq!(
        with_bytes(&[b"db", b"scan", store.as_bytes(), b"--from", b"\xff", b"--keys-only"]).stdout,
        "$'\\xff'\n"
    );
}

#[test]
fn escapes_and_digits_are_read_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "--escape", r"a\x00b", r"tab\there\xff"]);
    assert_eq!(ok(&["db", "get", &store, "--escape", r"a\0b"]), "$'tab\\there\\xff'\n");
    assert_eq!(ok(&["db", "get", &store, "610062", "--hex"]), "746162096865 7265ff\n".replace(' ', ""));
    let found = json(&ok(&["--json", "db", "get", &store, "610062", "--hex"]));
    assert_eq!(found["key"], json!({ "hex": "610062" }));
    assert_eq!(found["value"], json!({ "hex": "7461620968657265ff" }));
    // What a shell makes of the form that is shown is the key that was shown.
    let line = format!(
        "{} db put {store} $'it\\'s\\n\\\\' v && {} db get {store} $'it\\'s\\n\\\\'",
        env!("CARGO_BIN_EXE_tombolo"),
        env!("CARGO_BIN_EXE_tombolo")
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(output.stdout, b"v\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(ok(&["db", "scan", &store]).contains("$'it\\'s\\n\\\\'\tv\n"));
    fails(&["db", "put", &store, "--escape", r"bad\escape", "v"], 2, &["escape", "--escape"]);
    fails(&["db", "put", &store, "--hex", "abc", "00"], 2, &["hexadecimal", "abc"]);
    fails(&["db", "put", &store, "--hex", "--escape", "ab", "00"], 2, &["--hex", "--escape"]);
}

#[test]
fn values_come_from_files_and_pipes_up_to_their_limit() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let value: Vec<u8> = (0..=u8::MAX).collect();
    let file = folder.path().join("value");
    fs::write(&file, &value).unwrap();
    ok(&["db", "put", &store, "file", "--value-file", file.to_str().unwrap()]);
    let put = with_input(&["db", "put", &store, "pipe", "--value-file", "-"], &value);
    assert_eq!(put.0, 0, "{}", put.2);
    let empty = with_input(&["db", "put", &store, "empty", "--value-file", "-"], b"");
    assert_eq!(empty.0, 0, "{}", empty.2);
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    for key in ["file", "pipe"] {
        let found = json(&ok(&["--json", "db", "get", &store, key]));
        assert_eq!(found["value"], json!({ "hex": hex }), "{key}");
    }
    assert_eq!(ok(&["db", "get", &store, "empty", "--raw"]), "");
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let large = large.to_str().unwrap();
    fails(&["db", "put", &store, "k", "--value-file", large], 2, &["67108864", "large"]);
    // What never ends is not read to its end.
    fails(&["db", "put", &store, "k", "--value-file", "/dev/zero"], 2, &["67108864"]);
    fails(&["db", "put", &store, "k", "--value-file", "/nowhere/at/all"], 3, &["/nowhere/at/all"]);
    fails(&["db", "put", &store, "k"], 2, &["VALUE"]);
    fails(&["db", "put", &store, "k", "v", "--value-file", large], 2, &["--value-file"]);
    fails(&["db", "get", &store, "k"], 3, &[]);
}

/// What the JSON of a command says of bytes.
fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => {
            let hex = other["hex"].as_str().unwrap_or_else(|| panic!("{other}"));
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

/// Each command shows the entries as they are, and what one writes another reads.
fn commands_agree(entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("a"));
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let as_lines = |lines: &str| {
        json_lines(lines)
            .iter()
            .map(|line| (bytes_of(&line["key"]), bytes_of(&line["value"])))
            .collect::<BTreeMap<_, _>>()
    };
    let input: String = entries
        .iter()
        .map(|(key, value)| {
            format!("{}\n", json!({ "key": { "hex": digits(key) }, "value": { "hex": digits(value) } }))
        })
        .collect();
    let (code, _, message) = with_input(&["db", "import", &store], input.as_bytes());
    assert_eq!(code, 0, "{message}");
    let scanned = ok(&["--json", "db", "scan", &store]);
    assert_eq!(as_lines(&scanned), *entries);
    assert_eq!(ok(&["db", "export", &store]), scanned);
    assert_eq!(as_lines(&ok(&["--json", "db", "scan", &store, "--hex"])), *entries);
    for (name, arguments) in [
        ("json", &["--json", "db", "scan"][..]),
        ("hex", &["--json", "db", "scan", "--hex"]),
        ("ndjson", &["db", "export"]),
        ("text", &["db", "scan"]),
        ("tsv", &["db", "export", "--format", "tsv"]),
    ] {
        let lines = ok(&[arguments, &[store.as_str()]].concat());
        let other = uri(&folder.path().join(name));
        let format = if ["text", "tsv"].contains(&name) { "tsv" } else { "ndjson" };
        let (code, _, message) = with_input(&["db", "import", &other, "--format", format], lines.as_bytes());
        assert_eq!(code, 0, "{name}: {message}");
        assert_eq!(ok(&["--json", "db", "scan", &other]), scanned, "{name}");
    }
    let (first, value) = entries.first_key_value().unwrap();
    let found = json(&ok(&["--json", "db", "get", &store, "--hex", &digits(first)]));
    assert_eq!((bytes_of(&found["key"]), bytes_of(&found["value"])), (first.clone(), value.clone()));
    let log = json_lines(&ok(&["--json", "inspect", &store, "log", "--entries"]));
    assert_eq!(entries_of(&log), *entries, "the log");
    ok(&["db", "flush", &store]);
    let tables = json_lines(&ok(&["--json", "inspect", &store, "tables", "--entries"]));
    assert_eq!(entries_of(&tables), *entries, "the tables");
    let last = entries.last_key_value().unwrap().0;
    let levels = json(&ok(&["--json", "db", "levels", &store, "--tables"]));
    let table = &levels["keyspaces"][0]["tables"][0];
    assert_eq!((bytes_of(&table["first_key"]), bytes_of(&table["last_key"])), (first.clone(), last.clone()));
    let missing = tombolo(&["--json", "db", "get", &store, "--hex", &format!("{}00", digits(last))]);
    let error = &json(&missing.stderr)["error"];
    assert_eq!((missing.code, error["kind"].as_str()), (3, Some("NotFound")), "{error}");
    assert_eq!(bytes_of(&error["key"]), [&last[..], b"\0"].concat());
}

/// The entries that reports of `inspect` have.
fn entries_of(reports: &[Value]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let parts = reports.iter().flat_map(|report| report["parts"].as_array().unwrap());
    let puts = parts.filter(|part| part["what"] == "Put");
    puts.map(|part| (bytes_of(&part["key"]), bytes_of(&part["value"]))).collect()
}

#[test]
fn all_commands_agree_about_all_bytes() {
    let text = prop_oneof![
        Just("$'".to_owned()),
        Just("$'\\n'".to_owned()),
        Just("C:\\new\\table".to_owned()),
        Just("{\"hex\":\"00\"}".to_owned()),
        Just("\t\r\n\\'\u{85}\u{202e}".to_owned()),
        any::<String>(),
    ];
    let bytes = prop_oneof![text.prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..40),];
    let entries = prop::collection::btree_map(bytes.clone(), bytes, 1..60);
    // Each case is two dozen processes: few, with many entries.
    let mut runner = TestRunner::new(Config { cases: 3, failure_persistence: None, ..Config::default() });
    runner
        .run(&entries, |entries| {
            commands_agree(&entries);
            Ok(())
        })
        .unwrap();
}
