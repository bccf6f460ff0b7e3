//! Messages beside the results, on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Says something on standard error. Nobody hears it where that is closed, which is no failure.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
