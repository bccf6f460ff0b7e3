//! Standard output: text for people or JSON for machines, and no panic when its reader goes away.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde_json::{Value, json};

use crate::failure::Result;
use crate::note::note;

/// Where results go. Progress and errors go to standard error. Not locked in between: writer
/// processes report from their threads.
pub struct Output {
    json: bool,
    stdout: RefCell<BufWriter<Stdout>>,
    /// Something was written.
    begun: Cell<bool>,
}

impl Output {
    /// Results as JSON, or as text.
    pub fn new(json: bool) -> Output {
        Output { json, stdout: RefCell::new(BufWriter::new(io::stdout())), begun: Cell::new(false) }
    }

    /// Whether machines read.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person watches progress.
    pub fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Prints one result in the form asked for.
    pub fn result(&self, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.json { self.line(value()) } else { self.line(text()) }
    }

    /// Whether something was printed: then it is too late to begin anew.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Says something beside the results, on standard error.
    pub fn note(&self, text: &str) {
        let line = if self.json { json!({ "note": text }).to_string() } else { format!("tombolo: {text}") };
        note(line);
    }

    /// Prints a line.
    pub fn line(&self, line: impl Display) -> Result<()> {
        self.begun.set(true);
        Ok(writeln!(self.stdout.borrow_mut(), "{line}")?)
    }

    /// Writes bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.begun.set(true);
        Ok(self.stdout.borrow_mut().write_all(bytes)?)
    }

    /// Hands everything to the reader.
    pub fn finish(&self) -> Result<()> {
        Ok(self.stdout.borrow_mut().flush()?)
    }
}
