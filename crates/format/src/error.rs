//! What decoding can find wrong. The layer above adds which object it was.

use std::borrow::Cow;
use std::fmt;

/// A result of decoding or encoding bytes.
pub type Result<T> = std::result::Result<T, FormatError>;

/// Why bytes could not be decoded, or a value not be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes differ from the written ones.
    Damaged {
        /// Where, in bytes from the start of the decoded bytes.
        offset: u64,
        /// What should be there.
        expected: Cow<'static, str>,
        /// The value found.
        found: Cow<'static, str>,
    },
    /// The bytes are sound, but a newer version wrote them.
    Newer {
        /// Where, in bytes from the start of the decoded bytes.
        offset: u64,
        /// What this version does not know, with its number or feature bits.
        what: Cow<'static, str>,
    },
    /// A value is beyond what the format can hold.
    Limit {
        /// Which limit, and by how much.
        what: Cow<'static, str>,
    },
}

impl FormatError {
    /// Damage at `offset`.
    #[cold]
    pub fn damaged(
        offset: usize,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<Cow<'static, str>>,
    ) -> FormatError {
        FormatError::Damaged { offset: offset as u64, expected: expected.into(), found: found.into() }
    }

    /// Something of a newer version at `offset`.
    #[cold]
    pub fn newer(offset: usize, what: impl Into<Cow<'static, str>>) -> FormatError {
        FormatError::Newer { offset: offset as u64, what: what.into() }
    }

    /// A value beyond a limit.
    #[cold]
    pub fn limit(what: impl Into<Cow<'static, str>>) -> FormatError {
        FormatError::Limit { what: what.into() }
    }

    /// A checksum that does not match.
    #[cold]
    pub fn checksum(offset: usize, expected: u32, found: u32) -> FormatError {
        FormatError::damaged(offset, format!("checksum {expected:#010x}"), format!("checksum {found:#010x}"))
    }

    /// The same error in something that begins `base` bytes earlier.
    #[must_use]
    pub fn shifted(mut self, base: u64) -> FormatError {
        match &mut self {
            FormatError::Damaged { offset, .. } | FormatError::Newer { offset, .. } => {
                *offset = offset.saturating_add(base);
            }
            FormatError::Limit { .. } => {}
        }
        self
    }
}

impl FormatError {
    /// The same error, of `place`: what only a newer version knows is said of it.
    #[must_use]
    pub(crate) fn of(mut self, place: impl fmt::Display) -> FormatError {
        if let FormatError::Newer { what, .. } = &mut self {
            *what = format!("{place}: {what}").into();
        }
        self
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Damaged { offset, expected, found } => {
                write!(formatter, "damaged data at byte {offset}; expected {expected}; found {found}")
            }
            FormatError::Newer { offset, what } => write!(formatter, "newer format at byte {offset}: {what}"),
            FormatError::Limit { what } => write!(formatter, "beyond a limit: {what}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Refuses feature bits that are not in `known`.
pub(crate) fn check_features(offset: usize, bits: u64, known: u64) -> Result<()> {
    let unknown = bits & !known;
    if unknown != 0 {
        return Err(FormatError::newer(offset, format!("unknown incompatible feature bits {unknown:#x}")));
    }
    Ok(())
}

/// Refuses versions above `known`; version 0 was never written.
pub(crate) fn check_version(offset: usize, version: u32, known: u32) -> Result<()> {
    if version > known {
        return Err(FormatError::newer(
            offset,
            format!("version {version}; this program reads up to {known}"),
        ));
    }
    if version == 0 {
        return Err(FormatError::damaged(offset, format!("version 1 to {known}"), "version 0"));
    }
    Ok(())
}
