//! The name of a filter, as settings have it.

use std::fmt;

use tombolo_storage::{Error, ErrorKind, Result};

/// The name and version of a compaction filter, as settings have them: `expired_sessions@1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterName {
    /// Letters, digits, `_`, `-`, `.`; 1 to 64; not `none`.
    pub name: String,
    /// Changes when the filter decides by other rules.
    pub version: u32,
}

impl fmt::Display for FilterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.version)
    }
}

impl FilterName {
    /// A name with its version.
    ///
    /// # Errors
    /// `Invalid` for a name of other characters, or too long a one.
    pub fn new(name: impl Into<String>, version: u32) -> Result<FilterName> {
        let name = name.into();
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_fine) || name == "none" {
            let error = Error::new(ErrorKind::Invalid, "this is no name of a compaction filter");
            return Err(error
                .expected("1 to 64 letters, digits, '_', '-' or '.', and not none")
                .found(format!("{name:?}")));
        }
        Ok(FilterName { name, version })
    }

    /// Of a text such as `expired_sessions@1`. The version is said: a filter of another version
    /// decides by other rules, and what it drops is gone.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse(text: &str) -> Result<FilterName> {
        let Some((name, version)) = text.split_once('@') else {
            let name = FilterName::new(text, 1)?;
            let error = Error::new(ErrorKind::Invalid, "a compaction filter is named with its version");
            return Err(error.expected(format!("its version too, as in {name}")).found(format!("{text:?}")));
        };
        let version = version.parse().map_err(|_| {
            Error::new(ErrorKind::Invalid, "this is no version of a compaction filter")
                .expected("a number, as in expired_sessions@1")
                .found(format!("{version:?}"))
        })?;
        FilterName::new(name, version)
    }
}
