//! Tombolo for Python: databases as objects, keyspaces as dictionaries.
//!
//! Every call that may wait lets other threads of Python run meanwhile. Objects may be used by any
//! number of threads, and need no lock of the interpreter.

mod asynchronous;
mod batch;
mod buffer;
mod columns;
mod database;
mod error;
mod handles;
mod keyspace;
mod scan;
mod transaction;

use pyo3::prelude::*;

/// The native half of the package; `tombolo/__init__.py` is the other.
#[pymodule(gil_used = false)]
fn _tombolo(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)?;
    module.add_function(wrap_pyfunction!(database::open, module)?)?;
    module.add_function(wrap_pyfunction!(database::destroy, module)?)?;
    module.add_class::<handles::Database>()?;
    module.add_class::<handles::Snapshot>()?;
    module.add_class::<handles::Keyspace>()?;
    module.add_class::<handles::Batch>()?;
    module.add_class::<handles::Transaction>()?;
    module.add_class::<scan::Items>()?;
    module.add_class::<buffer::Value>()
}
