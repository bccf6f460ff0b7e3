//! The error of every Tombolo operation: a kind that says what to do, and a message that says what
//! happened, where, and the next step.

use std::fmt;
use std::sync::Arc;

/// A result with Tombolo's error.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an error. Kinds exist only where the caller acts differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Passing trouble (throttling, a time-out, a connection): the same call may succeed later.
    /// Nothing took effect.
    Retry,
    /// A limit of requests in flight or of memory was met: wait for some of it, then call again.
    Busy,
    /// Another transaction was faster: read again and retry the transaction.
    Conflict,
    /// Another process has taken the database over: this handle is finished. What was in flight is
    /// of unknown outcome.
    Fenced,
    /// Somebody has the database open, and was not to be disturbed: ask them, wait until they have
    /// closed it, or take it over.
    InUse,
    /// The operation may or may not have taken effect: read to find out.
    OutcomeUnknown,
    /// The deadline passed. A write may still take effect.
    DeadlineExceeded,
    /// What was named does not exist.
    NotFound,
    /// What was to be created exists.
    AlreadyExists,
    /// The call itself is wrong (a limit, an option, a URI): change it.
    Invalid,
    /// This store, or this version, cannot do that.
    Unsupported,
    /// The operating system or the store refuses access: change rights or credentials.
    PermissionDenied,
    /// The store is full: free space. Writes resume by themselves.
    OutOfSpace,
    /// Bytes in storage are not what was written: restore them. Never repaired silently.
    Corrupt,
    /// A reader's lease expired and its snapshot may be gone: open again.
    PinLost,
    /// The handle was closed.
    Closed,
    /// A bug of Tombolo: report it.
    Bug,
}

/// An error with its kind, its place and its cause. Cheap to clone, so that one failure can answer
/// many waiters.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    object: Option<String>,
    offset: Option<u64>,
    expected: Option<String>,
    found: Option<String>,
    advice: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` is a clause without capital and full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            object: None,
            offset: None,
            expected: None,
            found: None,
            advice: None,
            source: None,
        }))
    }

    /// Damaged bytes: which object, where, the value expected and the one found.
    pub fn corrupt(
        object: impl fmt::Display,
        offset: u64,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Corrupt, "damaged data")
            .object(object)
            .offset(offset)
            .expected(expected)
            .found(found)
            .advice(
                "restore the object from a copy; without one `tombolo db salvage URI` says what can be had",
            )
    }

    /// What decoding found wrong in the bytes of `object` that begin at `base_offset` in it:
    /// `Corrupt`, `Unsupported` when a newer version wrote them, `Invalid` when a value to be
    /// encoded is beyond a limit.
    pub fn format(object: impl fmt::Display, base_offset: u64, error: tombolo_format::FormatError) -> Error {
        use tombolo_format::FormatError;
        match error.shifted(base_offset) {
            FormatError::Damaged { offset, expected, found } => {
                Error::corrupt(object, offset, expected, found)
            }
            FormatError::Newer { offset, what } => {
                Error::new(ErrorKind::Unsupported, format!("newer format: {what}"))
                    .object(object)
                    .offset(offset)
                    .advice("open it with the version of Tombolo that wrote it, or a later one")
            }
            error => Error::new(ErrorKind::Invalid, error.to_string()).object(object),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Names the object or file concerned.
    pub fn object(self, object: impl fmt::Display) -> Error {
        let object = object.to_string();
        self.change(|inner| inner.object = Some(object))
    }

    /// Says where in the object, in bytes.
    pub fn offset(self, offset: u64) -> Error {
        self.change(|inner| inner.offset = Some(offset))
    }

    /// Says what should have been there.
    pub fn expected(self, expected: impl fmt::Display) -> Error {
        let expected = expected.to_string();
        self.change(|inner| inner.expected = Some(expected))
    }

    /// Says what was there.
    pub fn found(self, found: impl fmt::Display) -> Error {
        let found = found.to_string();
        self.change(|inner| inner.found = Some(found))
    }

    /// Says the next step to a person.
    pub fn advice(self, advice: impl Into<String>) -> Error {
        let advice = advice.into();
        self.change(|inner| inner.advice = Some(advice))
    }

    /// Keeps the cause.
    pub fn source(self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.change(|inner| inner.source = Some(Arc::new(source)))
    }

    /// Puts what was being done before the message.
    pub fn context(self, doing: impl fmt::Display) -> Error {
        self.change(|inner| inner.message = format!("{doing}: {}", inner.message))
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What happened, without place and advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The object or file concerned.
    pub fn object_name(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Where in the object, in bytes.
    pub fn position(&self) -> Option<u64> {
        self.0.offset
    }

    /// What should have been there.
    pub fn expectation(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// What was there.
    pub fn finding(&self) -> Option<&str> {
        self.0.found.as_deref()
    }

    /// The next step.
    pub fn next_step(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// An error of the operating system, with what was being done and to which path or object.
    pub fn io(error: std::io::Error, doing: impl fmt::Display, object: impl fmt::Display) -> Error {
        use std::io::ErrorKind as Io;
        let (kind, advice) = match error.kind() {
            _ if tombolo_env::simulated::is_crash(&error) => (ErrorKind::Closed, None),
            // EMFILE and ENFILE have no kind of their own.
            _ if matches!(error.raw_os_error(), Some(23 | 24)) => {
                (ErrorKind::Retry, Some("too many files are open: raise the limit (`ulimit -n`)"))
            }
            _ if is_link_loop(&error) => (
                ErrorKind::Invalid,
                Some("a symbolic link leads back to itself: remove it, or name the directory that is meant"),
            ),
            Io::NotFound => (ErrorKind::NotFound, Some("check the path")),
            Io::AlreadyExists => (ErrorKind::AlreadyExists, None),
            Io::PermissionDenied => {
                (ErrorKind::PermissionDenied, Some("check the owner and mode of the path"))
            }
            Io::ReadOnlyFilesystem => (
                ErrorKind::PermissionDenied,
                Some("the file system is mounted read-only: remount it, or open the database for reading"),
            ),
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => (
                ErrorKind::OutOfSpace,
                Some("free space on the disk or raise the quota; writes resume by themselves"),
            ),
            Io::InvalidInput | Io::InvalidFilename | Io::NotADirectory | Io::IsADirectory => (
                ErrorKind::Invalid,
                Some(
                    "check that every part of the path is what it should be: a directory, a file, a name of \
                    at most 255 bytes",
                ),
            ),
            Io::Unsupported => {
                (ErrorKind::Unsupported, Some("use a file system that can do this, ext4 or xfs for one"))
            }
            Io::TimedOut | Io::Interrupted | Io::WouldBlock => (ErrorKind::Retry, None),
            _ => (
                ErrorKind::Retry,
                Some("if it stays, look for trouble with the device in the system's log (`dmesg`)"),
            ),
        };
        let message = format!("{doing}: {error}");
        let error = Error::new(kind, message).object(object).source(error);
        match advice {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }
}

/// Whether a path goes through links that lead back to themselves (ELOOP, which has no kind of its
/// own).
pub(crate) fn is_link_loop(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(40)
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(formatter, "{:?}: {}", inner.kind, inner.message)?;
        if let Some(object) = &inner.object {
            write!(formatter, "; in {object}")?;
        }
        if let Some(offset) = inner.offset {
            write!(formatter, " at byte {offset}")?;
        }
        if let Some(expected) = &inner.expected {
            write!(formatter, "; expected {expected}")?;
        }
        if let Some(found) = &inner.found {
            write!(formatter, "; found {found}")?;
        }
        if let Some(advice) = &inner.advice {
            write!(formatter, "; to do: {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}
