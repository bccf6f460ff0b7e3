//! How a command fails: a message that names the next step, and an exit code that scripts can act
//! on.

use std::io;

use serde_json::{Value, json};
use tombolo::{Error, ErrorKind};

use crate::note::note;

/// A command's result.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The engine or a store said so.
    Engine(Error),
    /// The check that the command is for found something: exit code 1.
    Check(String),
    /// The command line asks for what cannot be: exit code 2.
    Usage(String),
    /// The command line is none of ours: exit code 2.
    CommandLine(clap::Error),
    /// What was named is not there: exit code 3.
    NotFound(String),
    /// A key without a value: exit code 3.
    NoValue {
        /// The key, as people are shown it.
        shown: String,
        /// The same for machines.
        key: Value,
        /// The keyspace.
        keyspace: String,
    },
    /// A condition of a write that does not hold: exit code 10.
    NotMet {
        /// The key, as people are shown it.
        key: String,
        /// What it has instead, as people are shown it.
        found: String,
        /// Both for machines.
        json: Value,
    },
    /// The terminal or the operating system.
    Io(io::Error, String),
    /// Ctrl-C.
    Interrupted,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Engine(error) => error.fmt(formatter),
            Failure::Check(text) | Failure::Usage(text) | Failure::NotFound(text) => {
                formatter.write_str(text)
            }
            Failure::CommandLine(error) => formatter.write_str(&command_line(error).0),
            Failure::NoValue { shown, keyspace, .. } => {
                write!(formatter, "the key {shown} has no value in keyspace {keyspace}")
            }
            Failure::NotMet { key, found, .. } => {
                write!(formatter, "nothing was written: the key {key} {found}")
            }
            Failure::Io(error, doing) => write!(formatter, "{doing}: {error}"),
            Failure::Interrupted => formatter.write_str("interrupted"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error, "writing output".to_owned())
    }
}

impl Failure {
    /// A failure of the operating system, with what was being done.
    pub fn io(error: io::Error, doing: impl Into<String>) -> Failure {
        Failure::Io(error, doing.into())
    }

    /// Whether standard output was closed by its reader.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Io(error, _) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether a command that goes on for ever may try again: what it did before is there.
    pub fn is_passing(&self) -> bool {
        let Failure::Engine(error) = self else { return false };
        matches!(
            error.kind(),
            ErrorKind::Retry
                | ErrorKind::Busy
                | ErrorKind::DeadlineExceeded
                | ErrorKind::OutcomeUnknown
                | ErrorKind::PinLost
                | ErrorKind::OutOfSpace
        )
    }

    /// See `tombolo --help`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Engine(error) => exit_code(error.kind()),
            Failure::Check(_) => 1,
            Failure::Usage(_) | Failure::CommandLine(_) => 2,
            Failure::NotFound(_) | Failure::NoValue { .. } => 3,
            Failure::NotMet { .. } => 10,
            Failure::Io(error, _) => exit_code(Error::io(io::Error::from(error.kind()), "", "").kind()),
            Failure::Interrupted => 130,
        }
    }

    /// Prints it on standard error.
    pub fn print(&self, as_json: bool) {
        if let (Failure::CommandLine(error), false) = (self, as_json) {
            // In colours where there are some; nobody to tell when standard error is closed.
            let _ = error.print();
            return;
        }
        let text = if as_json { json!({ "error": self.to_json() }).to_string() } else { self.to_text() };
        note(text);
    }

    fn to_text(&self) -> String {
        match self {
            Failure::Engine(error) => {
                let mut text = format!("tombolo: {}", error.message());
                let mut line = |name: &str, value: Option<String>| {
                    if let Some(value) = value {
                        text += &format!("\n  {name:<9} {value}");
                    }
                };
                line("kind", Some(format!("{:?}", error.kind())));
                line("in", error.object_name().map(str::to_owned));
                line("at byte", error.position().map(|at| at.to_string()));
                line("expected", error.expectation().map(str::to_owned));
                line("found", error.finding().map(str::to_owned));
                line(
                    "to do",
                    error.next_step().map_or_else(
                        || next_step(error.kind()).map(str::to_owned),
                        |step| Some(step.to_owned()),
                    ),
                );
                text
            }
            Failure::Check(text) => format!("tombolo: check failed: {text}"),
            Failure::Usage(_)
            | Failure::CommandLine(_)
            | Failure::NotFound(_)
            | Failure::NoValue { .. }
            | Failure::NotMet { .. }
            | Failure::Io(..)
            | Failure::Interrupted => format!("tombolo: {self}"),
        }
    }

    fn to_json(&self) -> Value {
        let code = self.exit_code();
        match self {
            Failure::Engine(error) => json!({
                "kind": format!("{:?}", error.kind()),
                "message": error.message(),
                "object": error.object_name(),
                "offset": error.position(),
                "expected": error.expectation(),
                "found": error.finding(),
                "to_do": error.next_step().or(next_step(error.kind())),
                "exit_code": code,
            }),
            Failure::Check(message) => json!({ "kind": "Check", "message": message, "exit_code": code }),
            Failure::Usage(message) => json!({ "kind": "Usage", "message": message, "exit_code": code }),
            Failure::CommandLine(error) => {
                let (message, to_do) = command_line(error);
                json!({ "kind": "Usage", "message": message, "to_do": to_do, "exit_code": code })
            }
            Failure::NotFound(message) => {
                json!({ "kind": "NotFound", "message": message, "exit_code": code })
            }
            Failure::NoValue { key, keyspace, .. } => json!({
                "kind": "NotFound", "message": self.to_string(), "key": key,
                "keyspace": keyspace, "exit_code": code,
            }),
            Failure::NotMet { json, .. } => json!({
                "kind": "NotMet", "message": self.to_string(), "key": json["key"],
                "keyspace": json["keyspace"], "found": json["found"], "exit_code": code,
            }),
            Failure::Io(error, doing) => {
                json!({ "kind": "Io", "message": format!("{doing}: {error}"), "exit_code": code })
            }
            Failure::Interrupted => {
                json!({ "kind": "Interrupted", "message": "interrupted", "exit_code": code })
            }
        }
    }
}

/// The trouble with a command line, and the next step.
fn command_line(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    (message.trim().to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::AlreadyExists => 2,
        ErrorKind::NotFound => 3,
        ErrorKind::Fenced => 4,
        ErrorKind::Corrupt => 5,
        ErrorKind::OutOfSpace | ErrorKind::PermissionDenied => 6,
        ErrorKind::Bug => 8,
        ErrorKind::InUse => 9,
        // Retry, Busy, Conflict, OutcomeUnknown, DeadlineExceeded, PinLost, Closed, and what later
        // versions add.
        _ => 7,
    }
}

/// What a person at the prompt does about an error whose maker had nothing more precise to say.
fn next_step(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Fenced => {
            "another process owns the database now: work through it, or run this command again to take over \
            in turn"
        }
        ErrorKind::InUse => "let the process that has the database open do it, or take it over: --take-over",
        ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded => "run the command again",
        ErrorKind::OutcomeUnknown => "read to find out whether it took effect, then write again if not",
        ErrorKind::NotFound => {
            "check the name; `tombolo db create URI` makes a database, `tombolo db keyspace list URI` lists \
            its keyspaces"
        }
        ErrorKind::AlreadyExists => "choose another name, or use what is there",
        ErrorKind::Corrupt => {
            "restore the object from a copy; without one `tombolo db salvage URI` says what can be had, \
            and `tombolo inspect URI` shows the bytes"
        }
        ErrorKind::OutOfSpace => "free space or raise the quota; nothing acknowledged is lost",
        ErrorKind::PermissionDenied => {
            "check the owner and mode of the path, and whether its file system is mounted read-only"
        }
        ErrorKind::Bug => "report it, with the command and this message",
        ErrorKind::Invalid => "`tombolo --help` shows how each command is written",
        _ => return None,
    })
}
