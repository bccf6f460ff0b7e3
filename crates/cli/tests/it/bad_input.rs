//! Wrong usage, wrong places, no permission: a typed error that names the thing and the next step,
//! and nothing touched.

use std::fs;
use std::process::{Command, Stdio};

use super::{Ran, fails, json, ok, ran, tombolo, uri};

#[test]
fn wrong_uris_are_refused_with_the_right_way_to_write_them() {
    for (wrong, words) in [
        ("orders", ["no scheme", "file:///"]),
        ("http://example.org/x", ["unknown", "mem"]),
        ("file://relative/path", ["relative", "file:///"]),
        ("file:///a/../b", ["..", "to do"]),
        ("file:///tmp/x?frm=written", ["frm", "to do"]),
        ("file:///tmp/%zz", ["%", "%25"]),
    ] {
        fails(&["db", "get", wrong, "k"], 2, &words);
    }
    fails(
        &["db", "get", "file:///tmp/tombolo-none", "--log", "file:///tmp/tombolo-none?form=other", "k"],
        2,
        &["form", "written", "mapped"],
    );
}

#[test]
fn unknown_options_are_refused_and_the_known_ones_listed() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    fails(&["db", "put", &store, "--set", "memory=1", "k", "v"], 2, &["memory", "memory_bytes"]);
    fails(&["db", "put", &store, "--set", "memory_bytes=many", "k", "v"], 2, &["memory_bytes", "many"]);
    fails(&["db", "put", &store, "--set", "memory_bytes=1", "k", "v"], 2, &["out of range"]);
    for (value, words) in [
        ("18446744073709551615", &["out of range", "1048576 to 17592186044416", "memory_bytes is:"][..]),
        ("99999999999999999999", &["digits", "64MiB", "memory_bytes is:"]),
        ("-1", &["digits", "64MiB"]),
        ("256MB", &["digits", "64MiB", "256MB"]),
        ("99TiB", &["out of range"]),
    ] {
        fails(&["db", "put", &store, "--set", &format!("memory_bytes={value}"), "k", "v"], 2, words);
    }
    fails(&["db", "put", &store, "--frobnicate", "k", "v"], 2, &["--frobnicate"]);
    fails(&["frobnicate"], 2, &["frobnicate"]);
    assert!(!folder.path().join("db").exists(), "a refused command made a directory");
}

#[test]
fn what_does_not_exist_is_not_made_by_reading() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("none"));
    for command in ["get", "delete"] {
        fails(&["db", command, &store, "k"], 3, &["to do", "create"]);
    }
    for command in ["scan", "verify", "compact", "flush", "stats", "levels", "export"] {
        fails(&["db", command, &store], 3, &["to do"]);
    }
    assert!(!folder.path().join("none").exists());
    ok(&["db", "create", &uri(&folder.path().join("db"))]);
    fails(&["db", "scan", &uri(&folder.path().join("db")), "--keyspace", "none"], 3, &["none"]);
}

#[test]
fn a_directory_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    fs::create_dir(folder.path().join("photos")).unwrap();
    fails(&["db", "scan", &uri(folder.path())], 3, &["to do"]);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["notes.txt", "photos"]);
    assert_eq!(fs::read(folder.path().join("notes.txt")).unwrap(), b"mine");
    let file = folder.path().join("notes.txt");
    let ran = tombolo(&["db", "put", &uri(&file), "k", "v"]);
    assert!([2, 6].contains(&ran.code), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("notes.txt"), "{}", ran.stderr);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

/// Creating is said, and is refused where it was rarely meant.
#[test]
fn a_database_is_made_where_it_was_meant_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    let first = tombolo(&["db", "put", &store, "k", "v"]);
    assert!(
        first.code == 0 && first.stderr.contains(&format!("made the database {store}")),
        "{}",
        first.stderr
    );
    let second = tombolo(&["--json", "db", "put", &store, "k", "v"]);
    assert!(second.stderr.is_empty() && json(&second.stdout)["created"] == false, "{}", second.stderr);
    let other = uri(&folder.path().join("other"));
    assert_eq!(json(&ok(&["--json", "db", "keyspace", "create", &other, "x"]))["created"], true);
    for command in [&["db", "put", "file:///", "k", "v"][..], &["db", "create", "/"], &["db", "import", "/"]]
    {
        fails(command, 2, &["root of this host", "--among-others"]);
    }
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let here = folder.path().to_str().unwrap();
    fails(&["db", "put", here, "k", "v"], 2, &["no database is made", "--among-others"]);
    fails(&["db", "create", here], 2, &["no database is made"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "a refused command made something");
    ok(&["db", "put", here, "k", "v", "--among-others"]);
    assert_eq!(ok(&["db", "get", here, "k"]), "v\n");
}

#[test]
fn paths_name_databases_whatever_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["50%", "what?", "#1", "my orders"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        ok(&["db", "put", path, "k", name]);
        assert_eq!(ok(&["db", "get", path, "k"]), format!("{name}\n"));
        for command in [&["inspect", path][..], &["explain", path], &["gc", path], &["db", "levels", path]] {
            ok(command);
        }
        assert!(fs::metadata(path).unwrap().is_dir());
    }
    let path = folder.path().join("50%");
    let copy = folder.path().join("copy?");
    ok(&["db", "clone", path.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(ok(&["db", "get", copy.to_str().unwrap(), "k"]), "50%\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.current_dir(folder.path()).args(["db", "get", "./#1", "k"]);
    assert_eq!(ran(command, &["./#1"]).stdout, "#1\n");
}

/// A place where even root may not write.
#[test]
fn without_permission_the_path_is_named() {
    fails(&["db", "put", "file:///sys/tombolo-test", "k", "v"], 6, &["/sys/tombolo-test", "to do"]);
}

#[test]
fn another_log_than_the_databases_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (uri(&folder.path().join("db")), uri(&folder.path().join("elsewhere")));
    ok(&["db", "put", &store, "k", "v"]);
    fails(&["db", "get", &store, "--log", &other, "k"], 2, &["log", "expected", "found", "elsewhere"]);
    assert_eq!(ok(&["db", "get", &store, "k"]), "v\n");
    // The form is no other log: either opens what the other wrote.
    for form in ["written", "mapped"] {
        assert_eq!(ok(&["db", "get", &store, "--log", &format!("{store}?form={form}"), "k"]), "v\n");
    }
}

#[test]
fn keys_over_the_limit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    fails(&["db", "put", &store, &"k".repeat(70_000), "v"], 2, &["65535", "70000"]);
    ok(&["db", "put", &store, &"k".repeat(65_535), "v"]);
}

#[test]
fn errors_are_json_for_machines() {
    let ran = tombolo(&["--json", "db", "get", "http://x", "k"]);
    let error = &json(&ran.stderr)["error"];
    assert_eq!(
        (ran.code, error["kind"].as_str(), error["exit_code"].as_u64()),
        (2, Some("Invalid"), Some(2))
    );
    assert!(error["expected"].is_string() && error["to_do"].is_string(), "{error}");
    assert!(ran.stdout.is_empty());
}

#[test]
fn wrong_command_lines_are_json_too() {
    for (arguments, word) in [
        (&["--json", "db", "get"][..], "<URI>"),
        (&["db", "get", "--json"], "<URI>"),
        (&["--json", "frobnicate"], "frobnicate"),
        (&["db", "scan", "mem://x", "--json", "--limit", "many"], "--limit"),
        (&["--json", "db", "put", "mem://x", "k"], "VALUE"),
        (&["--json"], "subcommand"),
    ] {
        let ran = tombolo(arguments);
        let error = &json(&ran.stderr)["error"];
        assert_eq!(
            (ran.code, error["kind"].as_str(), error["exit_code"].as_u64()),
            (2, Some("Usage"), Some(2))
        );
        assert!(error["message"].as_str().unwrap().contains(word), "{word}: {error}");
        assert!(error["to_do"].as_str().unwrap().contains("--help"), "{error}");
        assert!(ran.stdout.is_empty(), "{arguments:?}: {}", ran.stdout);
        let plain: Vec<_> = arguments.iter().copied().filter(|word| *word != "--json").collect();
        let text = tombolo(&plain).stderr;
        assert!(plain.is_empty() || text.starts_with("error: "), "{text}");
    }
    let help = tombolo(&["--json", "db", "--help"]);
    assert!(help.code == 0 && help.stdout.contains("Usage:") && help.stderr.is_empty(), "{}", help.stderr);
}

/// Every command ends in an orderly way where nobody reads what it says.
#[test]
fn nobody_at_the_other_end_of_a_pipe_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "k", "v"]);
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["frobnicate"], 2),
        (&["--json", "frobnicate"], 2),
        (&["-vvv", "db", "scan", &store], 0),
        (&["-vvv", "db", "compact", &store], 0),
        (&["db", "get", &store, "none"], 3),
        (&["db", "export", &store], 0),
        (&["inspect", &store, "--json"], 0),
        (&["completions", "bash"], 0),
        (&["demo", "--source", "/nowhere"], 2),
        (&["bench", "--num", "10", "--benchmarks", "fillrandom"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command.args(arguments).stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let ended = command.status().unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn sizes_are_written_alike_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "--set", "memory_bytes=64MiB", "--set", "memtable_bytes=4MiB", "k", "v"]);
    ok(&["db", "keyspace", "create", &store, "wide", "--keyspace-setting", "block_bytes=64KiB"]);
    let budget = ["--json", "db", "properties", &store, "memory-budget", "--set", "memory_bytes=128MiB"];
    assert_eq!(json(&ok(&budget))[0]["value"].as_u64(), Some(128 << 20));
    assert_eq!(ok(&["db", "get", &format!("{store}?bytes_per_second=8MiB"), "k"]), "v\n");
    fails(&["db", "get", &format!("{store}?bytes_per_second=8MB"), "k"], 2, &["bytes_per_second", "64MiB"]);
    fails(&["db", "import", &store, "--batch-bytes", "65MiB"], 2, &["--batch-bytes", "67108864"]);
}

#[test]
fn verbosity_shows_events_and_nothing_is_shown_without() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    for (arguments, shows) in [
        (&["db", "compact", &store][..], false),
        (&["-v", "db", "compact", &store], true),
        (&["db", "compact", &store, "-vv"], true),
    ] {
        ok(&["db", "put", &store, "k", "v"]);
        let ran = tombolo(arguments);
        let shown = ran.stderr.contains("INFO");
        assert_eq!((ran.code, shown), (0, shows), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn the_demo_refuses_what_it_cannot_show() {
    let folder = tempfile::tempdir().unwrap();
    fails(&["demo", "--source", "/proc"], 2, &["/proc", "kernel", "directory of a disk"]);
    fails(&["demo", "--store", "mem://x"], 2, &["one process"]);
    fails(&["demo", "--nodes", "2"], 2, &["--nodes 2", "3 at least"]);
    fails(&["demo", "--source", "/nowhere/at/all"], 2, &["--source"]);
    fails(
        &["demo", "--source", folder.path().to_str().unwrap(), "--seconds", "1"],
        2,
        &["no readable file", "--source"],
    );
    fails(&["demo", "--set", "memory=1", "--source", "/usr"], 2, &["memory_bytes"]);
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "mine", "kept"]);
    fails(&["demo", "--store", &store, "--source", "/usr"], 2, &["already", "another place"]);
    assert_eq!(ok(&["db", "scan", &store]), "mine\tkept\n");
}

#[test]
fn inspect_names_what_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    fails(&["inspect", "/nowhere/at/all"], 3, &["/nowhere/at/all"]);
    fails(&["inspect", folder.path().to_str().unwrap()], 3, &["nothing lies in", "check the URI"]);
    let file = folder.path().join("notes.txt");
    fs::write(&file, "mine").unwrap();
    fails(&["inspect", file.to_str().unwrap()], 5, &["notes.txt", "expected", "--as", "found"]);
    for what in [&[][..], &["manifest"], &["log"]] {
        fails(
            &[&["inspect", &uri(&folder.path().join("nothing"))][..], what].concat(),
            3,
            &["nothing lies in", "check the URI"],
        );
    }
    fails(
        &["inspect", &uri(folder.path()), "0000000000000001/table/1"],
        3,
        &["0000000000000001/table/1", "tombolo inspect file://", "lists"],
    );
    let store = uri(&folder.path().join("db"));
    fails(&["standby", &store], 3, &["no database here"]);
    assert!(ok(&["gc", &store]).contains("check the URI"));
    ok(&["db", "create", &store]);
    fails(&["db", "get", &store, "k", "--checkpoint", "monday"], 3, &["monday", "no checkpoints"]);
}

/// Runs the command in a process that may have so many files open.
fn with_open_files(limit: u32, arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    // A hang is a failure of the test, not of its caller.
    command
        .args([
            "100",
            "sh",
            "-c",
            &format!("ulimit -n {limit}; exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_tombolo"),
        ])
        .args(arguments);
    ran(command, arguments)
}

#[test]
fn without_open_files_left_a_command_ends_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // Three are the standard ones; two are the least that a file beside its directory takes.
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run = |limit: u32| {
            let store = uri(&folder.path().join(format!("db{limit}")));
            scope.spawn(move || {
                ok(&["db", "put", &store, "before", "kept"]);
                let put = with_open_files(limit, &["db", "put", &store, "k", "v"]);
                let get = with_open_files(limit, &["db", "get", &store, "before"]);
                (limit, store, put, get)
            })
        };
        (4..=12).map(run).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (limit, store, put, get) in &outcomes {
        for refused in [put, get].into_iter().filter(|ran| ran.code != 0) {
            assert_eq!(refused.code, 7, "{limit} files: {}", refused.stderr);
            assert!(
                refused.stderr.contains("too many files are open: raise the limit (`ulimit -n`)"),
                "{limit} files: {}",
                refused.stderr
            );
        }
        assert_eq!(ok(&["db", "get", store, "before"]), "kept\n", "{limit} files");
        if put.code == 0 {
            assert_eq!(ok(&["db", "get", store, "k"]), "v\n", "{limit} files");
        }
    }
    let (first, last) = (&outcomes[0], &outcomes[outcomes.len() - 1]);
    assert_ne!((first.2.code, first.3.code), (0, 0), "four files are enough: the test tests nothing");
    assert_eq!(
        (last.2.code, last.3.code),
        (0, 0),
        "twelve files are not enough: {}{}",
        last.2.stderr,
        last.3.stderr
    );
}
