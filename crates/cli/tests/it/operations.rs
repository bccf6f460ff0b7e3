//! Operations beside put, get and delete, at the prompt and as lines.

use super::{fails, json, ok, uri, with_input};

#[test]
fn a_range_of_keys_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for key in ["a", "b1", "b2", "c", "d"] {
        ok(&["db", "put", &store, key, "v"]);
    }
    fails(&["db", "delete-range", &store, "c", "b"], 2, &["no key is from c on and before b"]);
    fails(&["db", "delete-range", &store, "b", "b"], 2, &["the greater"]);
    fails(&["db", "delete-range", &store, "b", "c", "--keyspace", "none"], 3, &["none"]);
    let said = json(&ok(&["--json", "db", "delete-range", &store, "b", "c"]));
    assert!(said["epoch"].as_u64().unwrap() > 1, "{said}");
    assert_eq!(ok(&["db", "scan", &store, "--keys-only"]), "a\nc\nd\n");
    ok(&["db", "flush", &store]);
    ok(&["db", "delete-range", &store, "--hex", "64", "ff"]);
    assert_eq!(ok(&["db", "scan", &store, "--keys-only"]), "a\nc\n");
    ok(&["db", "compact", &store]);
    fails(&["db", "delete-files-in-range", &store, "c", "b"], 2, &["no key is from c on and before b"]);
    let said = json(&ok(&["--json", "db", "delete-files-in-range", &store, "a", "z"]));
    assert_eq!((&said["before"]["tables"], &said["after"]["tables"]), (&1.into(), &1.into()), "{said}");
    assert_eq!(ok(&["db", "scan", &store, "--keys-only"]), "");
    assert!(ok(&["db", "delete-files-in-range", &store, "a", "z"]).contains("had 1 table of "));
    // A missing keyspace leaves no writer that seems to live.
    assert_eq!(json(&ok(&["--json", "db", "writer", &store]))["state"], "closed");
}

#[test]
fn a_value_has_a_time_to_live() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "gone", "v", "--ttl", "1ms"]);
    ok(&["db", "put", &store, "there", "v", "--ttl", "36h"]);
    fails(&["db", "get", &store, "gone"], 3, &["no value"]);
    let entry = json(&ok(&["--json", "db", "scan", &store]));
    let end = entry["expires_ms"].as_u64().unwrap();
    assert_eq!((&entry["key"], &entry["value"]), (&"there".into(), &"v".into()));
    assert_eq!(json(&ok(&["--json", "db", "get", &store, "there"]))["expires_ms"], end);
    let exported = ok(&["db", "export", &store]);
    assert_eq!(json(&exported), entry, "scan and export say the same");
    let other = uri(&folder.path().join("other"));
    let (code, _, message) = with_input(&["db", "import", &other], exported.as_bytes());
    assert_eq!(code, 0, "{message}");
    assert_eq!(json(&ok(&["--json", "db", "scan", &other])), entry);

    let time = json(&ok(&["--json", "db", "time", &store]));
    assert!(time["time_ms"].as_u64().unwrap() < end, "{time}");
    let at = |milliseconds: u64| milliseconds.to_string();
    ok(&["db", "put", &store, "there", "w", "--expires-ms", &at(end + 5)]);
    assert_eq!(json(&ok(&["--json", "db", "scan", &store]))["expires_ms"], end + 5);
    fails(&["db", "put", &store, "late", "v", "--expires-ms", "1"], 2, &["Invalid"]);
    fails(&["db", "put", &store, "late", "v", "--ttl", "0s"], 2, &["Invalid"]);
    fails(&["db", "put", &store, "late", "v", "--ttl", "soon"], 2, &["such as 10m"]);
    fails(&["db", "put", &store, "late", "v", "--ttl", "1s", "--expires-ms", "1"], 2, &["cannot be used"]);

    // Merges end, too.
    ok(&["db", "keyspace", "create", &store, "words", "--operator", "append_comma"]);
    let words = ["--keyspace", "words", "recent"];
    ok(&[&["db", "merge", &store][..], &words, &["red", "--ttl", "36h"]].concat());
    ok(&[&["db", "merge", &store][..], &words, &["green", "--expires-ms", &at(end + 7)]].concat());
    let merged = json(&ok(&[&["--json", "db", "get", &store][..], &words].concat()));
    assert_eq!((&merged["value"], &merged["expires_ms"]), (&"red,green".into(), &(end + 7).into()));
    let late = [&["db", "merge", &store][..], &words, &["blue", "--expires-ms", "1"]].concat();
    fails(&late, 2, &["Invalid"]);

    // A lock that goes by itself.
    ok(&["db", "put", &store, "lock", "mine", "--if-absent", "--ttl", "1ms"]);
    ok(&["db", "put", &store, "lock", "yours", "--if-absent", "--ttl", "1h"]);
    fails(&["db", "put", &store, "lock", "mine", "--if-absent", "--ttl", "1h"], 10, &["yours"]);
}

#[test]
fn prepared_transactions_are_listed_and_decided() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for id in ["one", "two"] {
        let db = tombolo::Db::builder(&store).open().wait().unwrap();
        let transaction = db.transaction();
        transaction.put(&db.default_keyspace(), id, "prepared").wait().unwrap();
        assert_eq!(transaction.prepare(id).wait().unwrap().id(), id.as_bytes());
        db.close().wait().unwrap();
    }
    let list = json(&ok(&["--json", "db", "transactions", "list", &store]));
    assert_eq!((&list["in_doubt"][1]["id"], &list["in_doubt"][1]["is_own"]), (&"two".into(), &true.into()));
    assert!(ok(&["db", "transactions", "list", &store]).contains("one: 1 write of"));
    fails(&["db", "put", &store, "one", "other"], 7, &["prepared transaction \"one\""]);
    fails(&["db", "transactions", "decide", &store, "one"], 2, &["--commit"]);
    ok(&["db", "transactions", "decide", &store, "one", "--commit"]);
    ok(&["db", "transactions", "decide", &store, "two", "--roll-back"]);
    assert!(ok(&["db", "get", &store, "one"]).contains("prepared"));
    fails(&["db", "get", &store, "two"], 3, &[]);
    fails(&["db", "transactions", "decide", &store, "three", "--commit"], 3, &["three"]);
    assert!(ok(&["db", "transactions", "list", &store]).contains("no transaction is in doubt"));
}

#[test]
fn what_is_written_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "create", &store]);
    fails(&["db", "watch", &store, "--count", "1"], 2, &["subscri"]);
    let made = json(&ok(&["--json", "db", "subscriptions", "create", &store, "mirror", "--keep", "1MiB"]));
    let place = made["place"].as_u64().unwrap().to_string();
    ok(&["db", "put", &store, "a", "1"]);
    ok(&["db", "delete", &store, "a"]);
    let text = ok(&["db", "watch", &store, "--after", &place, "--count", "2"]);
    assert!(text.contains("default: put a = 1") && text.contains("default: delete a"), "{text}");
    let lines = ok(&["--json", "db", "watch", &store, "--subscription", "mirror", "--count", "1"]);
    let change = json(&lines);
    assert_eq!((&change["changes"][0]["op"], &change["changes"][0]["key"]), (&"put".into(), &"a".into()));
    fails(&["db", "watch", &store, "--subscription", "none", "--count", "1"], 3, &["none"]);
    assert!(ok(&["db", "subscriptions", "list", &store]).contains("mirror: has taken all up to"));
    assert!(ok(&["db", "subscriptions", "list", &store, "--all"]).contains("no subscriptions"));
    ok(&["db", "subscriptions", "create", &store, "everything", "--all"]);
    ok(&["db", "subscriptions", "end", &store, "everything", "--all"]);
    ok(&["db", "subscriptions", "end", &store, "mirror"]);
    fails(&["db", "subscriptions", "end", &store, "mirror"], 3, &["mirror"]);
}

#[test]
fn the_time_is_told_and_set() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "create", &store]);
    let before = json(&ok(&["--json", "db", "time", &store]));
    assert_eq!(before["ahead_ms"], 0, "{before}");
    assert!(ok(&["db", "time", &store]).contains("as this host's clock"));
    let set = json(&ok(&["--json", "db", "time", &store, "--reset"]));
    assert!(set["before_ms"].as_u64().unwrap() >= before["time_ms"].as_u64().unwrap(), "{set}");
    assert!(ok(&["db", "time", &store, "--reset"]).contains("it was"));
    fails(&["db", "time", &uri(&folder.path().join("none"))], 3, &["none"]);
}

#[test]
fn settings_of_keyspaces_have_names_at_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let settings = |name: &str| {
        let listed = ok(&["--json", "db", "keyspace", "list", &store]);
        listed.lines().map(json).find(|line| line["name"] == name).unwrap()["settings"].clone()
    };
    let create = ["db", "keyspace", "create", &*store, "k"];
    let short = ["--ttl", "10m", "--operator", "max", "--separate-from", "16KiB", "--shape", "tiered"];
    ok(&[&create[..], &short].concat());
    let found = settings("k");
    assert_eq!(
        [&found["ttl"], &found["operator"], &found["separate_bytes"], &found["shape"]],
        [&"10m", &"max@1", &"16384", &"tiered"],
        "{found}"
    );
    let set = ["db", "keyspace", "set", &*store, "k"];
    ok(&[&set[..], &["--ttl", "none", "filter_bits=0", "--filter", "tenants_left@1"]].concat());
    let found = settings("k");
    assert_eq!(
        [&found["ttl"], &found["filter_bits"], &found["compaction_filter"]],
        [&"none", &"0", &"tenants_left@1"]
    );
    fails(&[&set[..], &["--ttl", "soon"]].concat(), 2, &["ttl", "such as 10m"]);
    fails(&[&set[..], &["--separate-from", "7"]].concat(), 2, &["separate_bytes", "512"]);
    fails(&[&set[..], &["--operator", "min"]].concat(), 2, &["operator"]);
    // A filter is named with its version, and is told that it is not here.
    fails(&[&set[..], &["--filter", "tenants_left"]].concat(), 2, &["with its version", "tenants_left@1"]);
    fails(&[&create[..4], &["other", "--filter", "tenants_left"][..]].concat(), 2, &["with its version"]);
    let told = json(&ok(&[&["--json"][..], &set[..], &["--filter", "nobody@3"]].concat()));
    assert_eq!(told["missing_filter"], "nobody@3", "{told}");
    let (_, _, message) = with_input(&[&set[..], &["compaction_filter=nobody@4"]].concat(), b"");
    assert!(message.contains("nobody@4 is not there"), "{message}");
    let told = json(&ok(&[&["--json"][..], &set[..], &["filter_bits=10"]].concat()));
    assert_eq!(told["missing_filter"], serde_json::Value::Null, "{told}");
    let told =
        json(&ok(&[&["--json"][..], &create[..4], &["filtered", "--filter", "nobody@1"][..]].concat()));
    assert_eq!(told["missing_filter"], "nobody@1", "{told}");
    // A wrong operator is told with the right ones.
    let wrong = [&create[..4], &["wrong", "--operator", "nosuch"][..]].concat();
    fails(&wrong, 2, &["nosuch", "add_u64@1", "weights@1", "name one that is there"]);
    fails(&set, 2, &["NAME=VALUE"]);
    // What failed has closed the database.
    assert_eq!(json(&ok(&["--json", "db", "writer", &store]))["state"], "closed");
}

#[test]
fn lines_change_keys_in_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "keyspace", "create", &store, "words", "--operator", "append_comma"]);
    let lines = r#"{"key":"a","value":"1"}
{"key":"b","value":"2"}
{"key":"c","value":"3"}
{"key":"d","value":"4"}
{"key":"e","value":"5"}
{"key":"c","delete_to":"e"}
{"key":"d","value":"again"}
{"key":"a","delete":true}
{"key":"b","delete":"single"}
{"key":"e","merge":"6"}
{"key":"f","merge":"7"}
"#;
    let import = ["db", "import", &*store, "--keyspace", "words"];
    let (code, text, message) = with_input(&[&["--json"][..], &import[..]].concat(), lines.as_bytes());
    assert_eq!(code, 0, "{message}");
    assert_eq!(json(&text)["imported"], 11);
    assert_eq!(
        ok(&["db", "export", &store, "--keyspace", "words"]),
        "{\"key\":\"d\",\"value\":\"again\"}\n{\"key\":\"e\",\"value\":\"5,6\"}\n{\"key\":\"f\",\"value\":\"7\"}\n"
    );
    for (line, words) in [
        (r#"{"key":"b","delete_to":"a"}"#, &["line 1", "no key is from"][..]),
        (r#"{"key":"b","delete":1}"#, &["line 1", "neither true nor"]),
        (r#"{"key":"b"}"#, &["line 1", "delete_to"]),
    ] {
        let (code, _, message) = with_input(&import, line.as_bytes());
        assert_eq!(code, 2, "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    // A merge that the keyspace cannot take says why, and what to do.
    let (code, _, message) = with_input(&["db", "import", &store], br#"{"key":"b","merge":"1"}"#);
    assert!(code == 2 && message.contains("names no merge operator"), "{message}");
    let beyond = br#"{"key":"b","value":"1","expires_ms":9000000000000000000}"#;
    let (code, _, message) = with_input(&["db", "import", &store], beyond);
    assert!(code == 2 && message.contains("writing the entries 1 to 1"), "{message}");
}

/// Tables of a keyspace whose values end or lie apart say all of it.
#[test]
fn tables_of_every_keyspace_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (uri(&folder.path().join("db")), uri(&folder.path().join("other")));
    let large = "x".repeat(700);
    for (name, setting, value) in [("apart", "--separate-from", "512"), ("ending", "--ttl", "36h")] {
        ok(&["db", "keyspace", "create", &store, name, setting, value]);
        let lines =
            format!("{{\"key\":\"large\",\"value\":\"{large}\"}}\n{{\"key\":\"small\",\"value\":\"1\"}}\n");
        let import = ["db", "import", &store, "--keyspace", name];
        let (code, _, message) = with_input(&import, lines.as_bytes());
        assert_eq!(code, 0, "{message}");
        ok(&["db", "flush", &store]);
        let place = uri(&folder.path().join(name));
        ok(&["db", "export-tables", &store, &place, "--keyspace", name]);
        ok(&["db", "import-tables", &other, &place, "--trusted"]);
        let exported = ok(&["db", "export", &store, "--keyspace", name]);
        assert_eq!(ok(&["db", "export", &other, "--keyspace", name]), exported);
        assert!(exported.contains(&large), "{exported}");
        assert_eq!(exported.contains("expires_ms"), name == "ending", "{exported}");
    }
}

#[test]
fn inspect_shows_each_kind_of_entry() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "keyspace", "create", &store, "k", "--operator", "append_comma", "--separate-from", "512"]);
    let large = "x".repeat(700);
    let lines = format!(
        "{{\"key\":\"a\",\"value\":\"1\",\"expires_ms\":900000000000000}}\n{{\"key\":\"b\",\"merge\":\"2\"}}\n\
        {{\"key\":\"c\",\"delete_to\":\"d\"}}\n{{\"key\":\"e\",\"value\":\"{large}\"}}\n{{\"key\":\"f\",\"delete\":true}}\n\
        {{\"key\":\"g\",\"merge\":\"3\",\"expires_ms\":900000000000000}}\n\
        {{\"key\":\"h\",\"value\":\"{large}\",\"expires_ms\":900000000000000}}\n\
        {{\"key\":\"i\",\"delete\":\"single\"}}\n"
    );
    let (code, _, message) = with_input(&["db", "import", &store, "--keyspace", "k"], lines.as_bytes());
    assert_eq!(code, 0, "{message}");
    let parts = |object: &str| -> Vec<serde_json::Value> {
        let text = ok(&["--json", "inspect", &store, object, "--entries"]);
        text.lines().flat_map(|line| json(line)["parts"].as_array().unwrap().clone()).collect()
    };
    let check =
        |parts: &[serde_json::Value], kind: &str, key: &str, field: &str, value: serde_json::Value| {
            let found = parts.iter().find(|part| part["what"] == kind && part["key"] == key);
            let found = found.unwrap_or_else(|| panic!("no {kind} of {key} in {parts:?}"));
            assert_eq!(found[field], value, "{found}");
        };
    let log = parts("log");
    check(&log, "ExpiringPut", "a", "expires_ms", 900_000_000_000_000_u64.into());
    check(&log, "ExpiringPut", "a", "value", "1".into());
    check(&log, "Merge", "b", "merge", "2".into());
    check(&log, "RangeDelete", "c", "delete_to", "d".into());
    check(&log, "ExpiringMerge", "g", "merge", "3".into());
    check(&log, "ExpiringMerge", "g", "expires_ms", 900_000_000_000_000_u64.into());
    check(&log, "Delete", "f", "value", serde_json::Value::Null);
    check(&log, "SingleDelete", "i", "value", serde_json::Value::Null);
    ok(&["db", "flush", &store]);
    let tables = parts("tables");
    check(&tables, "ExpiringPut", "a", "expires_ms", 900_000_000_000_000_u64.into());
    check(&tables, "RangeDelete", "c", "delete_to", "d".into());
    check(&tables, "SeparatedPut", "e", "value_bytes", 700.into());
    check(&tables, "SeparatedExpiringPut", "h", "value_bytes", 700.into());
    check(&tables, "SeparatedExpiringPut", "h", "expires_ms", 900_000_000_000_000_u64.into());
    let of = |what: &str, parts: &[serde_json::Value]| {
        parts.iter().find(|part| part["what"] == what).unwrap_or_else(|| panic!("{what}: {parts:?}")).clone()
    };
    assert_eq!(of("range deletes", &tables)["ranges"], 1);
    let footer = tables.iter().find(|part| part["records"].is_number()).unwrap();
    assert_eq!((&footer["records"], &footer["value_bytes"]), (&2.into(), &1400.into()));
    let manifest = parts("manifest");
    let table = of("table added", &manifest);
    assert_eq!((&table["range_deletes"], &table["expiring"]), (&1.into(), &3.into()), "{table}");
    assert_eq!(table["value_objects"][0]["identity"], of("value object added", &manifest)["identity"]);
}

#[test]
fn a_database_has_a_cold_store() {
    let folder = tempfile::tempdir().unwrap();
    let (store, cold) = (uri(&folder.path().join("db")), uri(&folder.path().join("cold")));
    ok(&["db", "create", &store, "--cold-store", &cold]);
    ok(&["db", "keyspace", "create", &store, "events", "--keyspace-setting", "cold_after=30d"]);
    ok(&["db", "put", &store, "--keyspace", "events", "1", "one"]);
    let properties = json(&ok(&["--json", "db", "properties", &store, "cold-tables"]));
    assert_eq!(properties[0]["value"], 0, "{properties}");
    let other = uri(&folder.path().join("other"));
    fails(
        &["db", "put", &store, "2", "two", "--cold-store", &other],
        2,
        &["holds no cold tables", "mount or name"],
    );
}

/// What a keyspace says of a key stays, and tables behind it say the rest.
#[test]
fn tables_are_ingested_behind_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (store, old) = (uri(&folder.path().join("db")), uri(&folder.path().join("old")));
    let parts = folder.path().join("parts").to_str().unwrap().to_owned();
    for (key, value) in [("a", "old"), ("b", "old"), ("c", "old")] {
        ok(&["db", "put", &old, key, value]);
    }
    ok(&["db", "export-tables", &old, &parts]);
    let part = format!("{parts}/part-00001.table");
    ok(&["db", "put", &store, "a", "new"]);
    fails(&["db", "ingest", &store, &part, "--behind"], 2, &["ingest_behind=true"]);
    let kept = ["--keyspace-setting", "ingest_behind=true"];
    ok(&[&["db", "keyspace", "create", &store, "history"][..], &kept].concat());
    let here = ["--keyspace", "history"];
    ok(&[&["db", "put", &store, "a", "new"][..], &here].concat());
    ok(&[&["db", "delete", &store, "b"][..], &here].concat());
    ok(&["db", "flush", &store]);
    let ingest = [&["db", "ingest", &store, &part, "--behind"][..], &here].concat();
    fails(&[&ingest[..], &["--exchange"]].concat(), 2, &["--exchange"]);
    ok(&ingest);
    fails(&ingest, 2, &["ingested behind before"]);
    let scan = || ok(&[&["db", "scan", &store][..], &here].concat());
    assert_eq!(scan(), "a\tnew\nc\told\n");
    ok(&["db", "keyspace", "set", &store, "history", "ingest_behind=false"]);
    assert_eq!(scan(), "a\tnew\nc\told\n");
    fails(&["db", "keyspace", "set", &store, "history", "ingest_behind=true"], 2, &["another keyspace"]);

    // A table that is not there, and one that is damaged, say nothing of the database.
    fails(&["db", "ingest", &store, &parts], 3, &[&parts, "import-tables"]);
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    // The database took it by a hard link: it is replaced and not changed.
    std::fs::remove_file(&part).unwrap();
    std::fs::write(&part, bytes).unwrap();
    fails(
        &["db", "ingest", &store, &part],
        5,
        &[&part, "nothing of the database is", "make the table again"],
    );
    assert_eq!(ok(&["db", "scan", &store]), "a\tnew\n");
    ok(&["db", "verify", &store]);
}

#[test]
fn keys_are_counted_cut_into_parts_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let lines: String = (0..3000).map(|number| format!("key-{number:04}\tvalue {number}\n")).collect();
    let (code, _, message) = with_input(&["db", "import", &store, "--format", "tsv"], lines.as_bytes());
    assert_eq!(code, 0, "{message}");
    assert_eq!(ok(&["db", "count", &store]), "3000\n");
    assert_eq!(ok(&["db", "count", &store, "--from", "key-0100", "--to", "key-0200"]), "100\n");
    assert_eq!(json(&ok(&["--json", "db", "count", &store, "--prefix", "key-00"]))["keys"], 100);
    let cuts = ok(&["db", "splits", &store, "4"]);
    assert!((1..4).contains(&cuts.lines().count()), "{cuts}");
    let sample = ok(&["db", "sample", &store, "5"]);
    assert_eq!(sample.lines().filter(|line| line.starts_with("key-")).count(), 5, "{sample}");
    fails(&["db", "splits", &store, "0"], 2, &["0 parts"]);
    // A part of a checkpoint is a database.
    ok(&["db", "checkpoint", "create", &store, "c"]);
    let part = uri(&folder.path().join("part"));
    ok(&["db", "checkpoint", "restore", &store, "c", &part, "--from", "key-1000", "--to", "key-1500"]);
    assert_eq!(ok(&["db", "count", &part]), "500\n");
}
