//! The command line as users meet it: what works, and what bad input gets.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod backups;
mod bad_input;
mod bench;
mod beside_a_writer;
mod bytes;
mod checkpoints;
mod commands;
mod damage;
mod doctor;
mod insight;
mod live_writer;
mod looks;
mod mirror;
mod near_log;
mod operations;
mod places;
mod processes;
mod readme;
mod serve;
mod transfer;
mod watched;
mod workload;
mod zoned;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a run gave.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs the command.
fn tombolo(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(arguments);
    ran(command, arguments)
}

/// Runs what runs the command; no test of ours may panic it.
fn ran(mut command: Command, arguments: &[&str]) -> Ran {
    let output: Output = command.stdin(Stdio::null()).output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!ran.stderr.contains("panicked"), "{arguments:?}: {}", ran.stderr);
    assert_ne!(ran.code, 101, "{arguments:?}");
    ran
}

/// Runs the command with `input` on standard input; gives exit code, output, messages.
fn with_input(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs the command and expects it to succeed.
fn ok(arguments: &[&str]) -> String {
    let ran = tombolo(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Runs the command and expects this exit code, and all these words in its message.
fn fails(arguments: &[&str], code: i32, words: &[&str]) -> String {
    let ran = tombolo(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{arguments:?}: {word:?} is not in\n{}", ran.stderr);
    }
    ran.stderr
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}
