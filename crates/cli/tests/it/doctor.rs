//! `tombolo doctor` and `tombolo completions`.

use std::fs;

use super::{fails, json, ok, tombolo, uri};

#[test]
fn it_tells_of_the_machine_and_the_store_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    // Verdicts depend on the machine: what is bad on one is not on another.
    let ran = tombolo(&["--json", "doctor", &store]);
    assert!([0, 1].contains(&ran.code), "{}", ran.stderr);
    let facts = json(&ran.stdout);
    let fact = |name: &str| {
        facts["facts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|fact| fact["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {facts}"))
    };
    for name in [
        "cores",
        "memory",
        "memory budget",
        "huge pages",
        "open files",
        "io_uring",
        "load",
        "build",
        "file system",
        "durable writes",
    ] {
        assert!(["ok", "warn", "bad"].contains(&fact(name)["verdict"].as_str().unwrap()), "{name}: {facts}");
        assert!(fact(name)["verdict"] == "ok" || fact(name)["to_do"].is_string(), "{name}: {facts}");
    }
    assert_eq!(fact("database")["value"], "none here yet");
    assert!(!folder.path().join("db").exists(), "looking made a directory");

    ok(&["db", "put", &store, "k", "v"]);
    let text = tombolo(&["doctor", &store]).stdout;
    assert!(
        text.contains("this machine\n")
            && text.contains(&format!("store {store}"))
            && text.contains("manifest record"),
        "{text}"
    );
}

#[test]
fn what_is_bad_is_said_and_ends_with_one() {
    let message = fails(&["doctor", "--set", "memory_bytes=17592186044416"], 1, &["memory budget"]);
    assert!(message.contains("check failed"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "k", "v"]);
    let mut waiting = vec![folder.path().join("db")];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_str().unwrap().contains("/manifest/") {
                fs::remove_file(&path).unwrap();
                fs::write(&path, "nonsense").unwrap();
            }
        }
    }
    let ran = tombolo(&["doctor", &store]);
    assert!(ran.code == 1 && ran.stdout.contains("bad   database"), "{}{}", ran.stdout, ran.stderr);
    let flash = format!("flash_cache_directory={}", folder.path().display());
    let ran = tombolo(&["doctor", "--set", &flash]);
    assert!(
        ran.code == 1 && ran.stdout.contains("bad   flash cache"),
        "a directory with a database in it: {}",
        ran.stdout
    );
    fails(&["doctor", "nowhere"], 2, &["file:///"]);
    fails(&["doctor", "--log", "file:///tmp/x"], 2, &["store"]);
    fails(&["doctor", "--set", "memory=1"], 2, &["memory_bytes"]);
}

#[test]
fn shells_learn_to_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(&["completions", shell]);
        for word in ["tombolo", "bench", "doctor", "keyspace", "import"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    fails(&["completions", "cmd"], 2, &["cmd", "bash"]);
}
