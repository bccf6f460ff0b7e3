//! `tombolo doctor` and `tombolo completions`.

use std::fs;

use super::looks::{open_folder, run_as};
use super::{fails, json, ok, tombolo, uri};

#[test]
fn it_tells_of_the_machine_and_the_store_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    // Verdicts depend on the machine: the same store may be good on one and bad on another.
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

/// What cannot be written, and who is not there, is bad before anybody depends on it.
#[test]
fn rights_and_nodes_are_tried() {
    let fact = |ran: &super::Ran, name: &str| {
        let facts = json(&ran.stdout)["facts"].as_array().unwrap().clone();
        facts
            .into_iter()
            .find(|fact| fact["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {}", ran.stdout))
    };
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "k", "v"]);
    let ran = tombolo(&["--json", "doctor", &store]);
    assert_eq!(fact(&ran, "writing")["verdict"], "ok", "{}", ran.stdout);
    assert_eq!(fact(&tombolo(&["--json", "doctor", "mem://x"]), "writing")["verdict"], "ok");
    // Where even root may not write.
    let ran = tombolo(&["--json", "doctor", "file:///sys/tombolo-test"]);
    assert_eq!((ran.code, fact(&ran, "writing")["verdict"].as_str()), (1, Some("bad")), "{}", ran.stdout);
    // Nobody listens at port 1.
    let log = "near://127.0.0.1:1,localhost:1,[::1]:1";
    let ran = tombolo(&["--json", "doctor", &store, "--log", log]);
    assert_eq!((ran.code, fact(&ran, "nodes")["verdict"].as_str()), (1, Some("bad")), "{}", ran.stdout);
    assert!(fact(&ran, "node")["value"].as_str().unwrap().contains("127.0.0.1:1"), "{}", ran.stdout);
}

/// Who may read and not write: another user than the owner, or, where the tests do not run as root,
/// the owner, whose own right to write is taken away.
#[test]
fn who_may_not_write_is_told_that() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, other) = open_folder();
    let directory = folder.path().join("db");
    let store = uri(&directory);
    ok(&["db", "put", &store, "k", "v"]);
    let mode = |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    if other.is_none() {
        mode(0o555);
    }
    let ran = run_as(other.as_ref(), &["--json", "doctor", &store]);
    mode(0o755);
    let facts = json(&ran.stdout);
    let writing = facts["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "writing").unwrap();
    assert_eq!((ran.code, writing["verdict"].as_str()), (1, Some("bad")), "{writing}");
}
