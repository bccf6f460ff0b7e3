//! Exceptions: one class for each kind of error, below `Error`.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tombolo::ErrorKind;

create_exception!(tombolo, Error, PyException, "What the engine failed with; its subclasses are its kinds.");
create_exception!(tombolo, Retry, Error, "Passing trouble; nothing took effect.");
create_exception!(tombolo, Busy, Error, "A limit of work in flight or of memory.");
create_exception!(tombolo, Conflict, Error, "A write with conditions was overtaken.");
create_exception!(tombolo, Fenced, Error, "Another process has the database.");
create_exception!(tombolo, InUse, Error, "Somebody has the database open.");
create_exception!(tombolo, OutcomeUnknown, Error, "The write may have taken effect: read to find out.");
create_exception!(tombolo, DeadlineExceeded, Error, "The deadline passed; a write may still take effect.");
create_exception!(tombolo, NotFound, Error, "What was named does not exist.");
create_exception!(tombolo, AlreadyExists, Error, "What was to be created exists.");
create_exception!(tombolo, Invalid, Error, "The call is wrong.");
create_exception!(tombolo, Unsupported, Error, "This store or version cannot do it.");
create_exception!(tombolo, PermissionDenied, Error, "The system or the store refuses access.");
create_exception!(tombolo, OutOfSpace, Error, "The store is full.");
create_exception!(tombolo, Corrupt, Error, "Bytes in storage are not what was written.");
create_exception!(tombolo, PinLost, Error, "What a reader needs was deleted: open again.");
create_exception!(tombolo, Closed, Error, "The handle was closed.");
create_exception!(tombolo, Bug, Error, "A bug of Tombolo: report it.");

/// The exception of an error.
pub fn raised(error: &tombolo::Error) -> PyErr {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Retry => Retry::new_err(text),
        ErrorKind::Busy => Busy::new_err(text),
        ErrorKind::Conflict => Conflict::new_err(text),
        ErrorKind::Fenced => Fenced::new_err(text),
        ErrorKind::InUse => InUse::new_err(text),
        ErrorKind::OutcomeUnknown => OutcomeUnknown::new_err(text),
        ErrorKind::DeadlineExceeded => DeadlineExceeded::new_err(text),
        ErrorKind::NotFound => NotFound::new_err(text),
        ErrorKind::AlreadyExists => AlreadyExists::new_err(text),
        ErrorKind::Invalid => Invalid::new_err(text),
        ErrorKind::Unsupported => Unsupported::new_err(text),
        ErrorKind::PermissionDenied => PermissionDenied::new_err(text),
        ErrorKind::OutOfSpace => OutOfSpace::new_err(text),
        ErrorKind::Corrupt => Corrupt::new_err(text),
        ErrorKind::PinLost => PinLost::new_err(text),
        ErrorKind::Closed => Closed::new_err(text),
        ErrorKind::Bug => Bug::new_err(text),
        // A kind that this version of the package has no class for.
        _ => Error::new_err(text),
    }
}

/// A result whose error is an exception.
pub trait OrRaise<T> {
    /// See [`OrRaise`].
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for tombolo::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raised(&error))
    }
}

/// Adds all classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let python = module.py();
    module.add("Error", python.get_type::<Error>())?;
    module.add("Retry", python.get_type::<Retry>())?;
    module.add("Busy", python.get_type::<Busy>())?;
    module.add("Conflict", python.get_type::<Conflict>())?;
    module.add("Fenced", python.get_type::<Fenced>())?;
    module.add("InUse", python.get_type::<InUse>())?;
    module.add("OutcomeUnknown", python.get_type::<OutcomeUnknown>())?;
    module.add("DeadlineExceeded", python.get_type::<DeadlineExceeded>())?;
    module.add("NotFound", python.get_type::<NotFound>())?;
    module.add("AlreadyExists", python.get_type::<AlreadyExists>())?;
    module.add("Invalid", python.get_type::<Invalid>())?;
    module.add("Unsupported", python.get_type::<Unsupported>())?;
    module.add("PermissionDenied", python.get_type::<PermissionDenied>())?;
    module.add("OutOfSpace", python.get_type::<OutOfSpace>())?;
    module.add("Corrupt", python.get_type::<Corrupt>())?;
    module.add("PinLost", python.get_type::<PinLost>())?;
    module.add("Closed", python.get_type::<Closed>())?;
    module.add("Bug", python.get_type::<Bug>())
}
