//! What a person sees who watches at a terminal, and a script does not.

use std::io::Read;
use std::process::{Command, Stdio};

use super::{json, ok, ran, tombolo, uri};

/// What the command prints at a terminal, on both outputs; nothing where `script`, which makes the
/// terminal, is not installed.
fn at_a_terminal(arguments: &[&str]) -> Option<String> {
    Command::new("script").arg("--version").output().ok()?;
    let words: Vec<_> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_tombolo"), words.join(" "));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]);
    let ran = ran(script, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stdout);
    Some(ran.stdout)
}

/// A database with the key `a` in a table.
fn made() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "put", &store, "a", "one"]);
    ok(&["db", "flush", &store]);
    (folder, store)
}

#[test]
fn progress_is_shown_at_a_terminal_alone() {
    let (_folder, store) = made();
    // So slow that it is looked at in between.
    let slow = format!("{store}?latency_ms=30");
    for (verb, arguments) in [("verified", ["db", "verify", &slow]), ("rewritten", ["db", "compact", &slow])]
    {
        let ran = tombolo(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(!ran.stdout.contains(verb), "{}", ran.stdout);
        if let Some(shown) = at_a_terminal(&arguments) {
            assert!(shown.contains(verb), "{arguments:?} shows no progress: {shown:?}");
        }
    }
}

/// Data stay as they are, for scripts; a person is told beside them how old they are, and a program
/// in its object.
#[test]
fn looks_say_how_old_they_are() {
    let (_folder, store) = made();
    for (words, data) in [
        (&["db", "get", &store, "a"][..], "one\n"),
        (&["db", "scan", &store], "a\tone\n"),
        (&["db", "count", &store], "1\n"),
        (&["db", "sample", &store, "1"], "a\tone\n"),
        (&["db", "splits", &store, "2"], ""),
        (&["db", "keyspace", "list", &store], "default\tid 0"),
        (&["db", "levels", &store], "keyspace default\n"),
        (&["db", "explain-get", &store, "a"], "not asked"),
        (&["db", "transactions", "list", &store], "no transaction"),
        (&["db", "subscriptions", "list", &store], "no subscriptions"),
        (&["db", "time", &store], "this host's clock"),
        (&["db", "properties", &store, "entries"], "entries"),
        (&["db", "stats", &store], "seen        by a look from outside, as of 20"),
    ] {
        let ran = tombolo(words);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words:?}");
        assert!(ran.stdout.contains(data), "{words:?}: {}", ran.stdout);
        let says = words[1] == "stats";
        assert_eq!(ran.stdout.contains("as of 20"), says, "{words:?}: {}", ran.stdout);
        if let Some(shown) = at_a_terminal(words) {
            assert_eq!(shown.matches("as of 20").count(), 1, "{words:?}: {shown:?}");
        }
        let said = ok(&[&["--json"], words].concat());
        let is_object = said.lines().count() == 1 && json(&said).is_object();
        if is_object && !matches!(words[1], "scan" | "sample" | "keyspace") {
            assert!(json(&said)["age_ms"].is_u64(), "{words:?}: {said}");
        } else {
            assert!(!said.contains("age_ms"), "{words:?}: {said}");
        }
    }
    let kept = ["db", "get", &store, "a", "--checkpoint", "kept"];
    ok(&["db", "checkpoint", "create", &store, "kept"]);
    if let Some(shown) = at_a_terminal(&kept) {
        assert!(shown.contains("as of the checkpoint"), "{shown:?}");
    }
}

/// A look never writes: that it could not is nothing to warn of.
#[test]
fn a_look_that_says_what_happens_warns_of_nothing() {
    let (_folder, store) = made();
    ok(&["db", "checkpoint", "create", &store, "kept"]);
    for more in [&["db", "get", &store, "a"][..], &["db", "get", &store, "a", "--checkpoint", "kept"]] {
        let ran = tombolo(&[&["-vv"], more].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "one\n"));
        assert!(!ran.stderr.contains("WARN"), "{more:?}: {}", ran.stderr);
    }
}

/// Who has seen enough closes the pipe; that is no failure.
#[test]
fn the_demo_ends_well_when_nobody_reads_on() {
    let source = tempfile::tempdir().unwrap();
    for file in 0..20 {
        std::fs::write(source.path().join(format!("{file}.txt")), format!("content {file}")).unwrap();
    }
    let mut demo = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["demo", "--seconds", "1", "--rounds", "1", "--nodes", "0", "--source"])
        .arg(source.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = [0; 300];
    demo.stdout.take().unwrap().read_exact(&mut seen).unwrap();
    let output = demo.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("panicked"), "{}: {said}", output.status);
}
