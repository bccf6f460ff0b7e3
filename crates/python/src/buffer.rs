//! Bytes of the engine in Python without a copy, and bytes of Python in the engine.

use std::ffi::{c_int, c_void};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Bytes that lie where the engine has them: `memoryview(value)` does not copy. They keep that
/// memory until the object and all views of it are gone.
#[pyclass(frozen)]
pub struct Value(pub tombolo::Value);

#[pymethods]
impl Value {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, python: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(python, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("<tombolo.Value of {} bytes>", self.0.len())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        let bytes: &[u8] = &slf.get().0;
        let (pointer, length) = (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len());
        // A view that asks to write is refused by the function itself: the last argument but one
        // says so.
        // SAFETY: `view` is Python's to fill. The bytes live as long as the object, to which the
        // view holds a reference, and nobody changes them.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, length.cast_signed(), 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Bytes of a key or a value: bytes, anything with a buffer, or text, which is taken as UTF-8.
pub enum Given {
    /// `bytes`, which never change.
    Bytes(Py<PyBytes>),
    /// All others, copied: they may change while the interpreter is let go.
    Copied(Vec<u8>),
}

impl Given {
    /// The bytes.
    pub fn bytes<'a>(&'a self, python: Python<'a>) -> &'a [u8] {
        match self {
            Given::Bytes(bytes) => bytes.bind(python).as_bytes(),
            Given::Copied(bytes) => bytes,
        }
    }
}

impl<'py> FromPyObject<'py> for Given {
    fn extract_bound(object: &Bound<'py, PyAny>) -> PyResult<Given> {
        if let Ok(bytes) = object.downcast::<PyBytes>() {
            return Ok(Given::Bytes(bytes.clone().unbind()));
        }
        if let Ok(text) = object.downcast::<PyString>() {
            return Ok(Given::Copied(text.to_cow()?.as_bytes().to_vec()));
        }
        let buffer = PyBuffer::<u8>::get(object)?;
        Ok(Given::Copied(buffer.to_vec(object.py())?))
    }
}
