//! The promises of the interfaces, as checks that any store can be put through: a backend, a layer,
//! in the real world or a simulated one.
//!
//! A check returns the first promise that it finds broken. Stores of other crates call these from
//! their tests; names are fresh in each run, so that a store in use can be checked too.

pub mod log;
pub mod object;

#[cfg(test)]
mod tests;

use std::fmt;

pub use object::object_store;

use crate::Error;

/// A promise that a store did not keep.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    /// A violation, in words.
    pub fn new(what: impl Into<String>) -> Violation {
        Violation(what.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Violation {}

impl From<Error> for Violation {
    fn from(error: Error) -> Violation {
        Violation(format!("an error where none was due: {error}"))
    }
}

/// Whether the promises were kept.
pub type Verdict = Checked<()>;

/// Something found out while checking.
pub(crate) type Checked<T> = Result<T, Violation>;

/// Returns a violation unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Violation::new(format!($($what)+)));
        }
    };
}
pub(crate) use ensure;
