//! Batches as context managers.

use std::sync::PoisonError;

use pyo3::prelude::*;

use crate::asynchronous::begin;
use crate::buffer::Given;
use crate::error::OrRaise;
use crate::handles::{Batch, Keyspace};

impl Batch {
    fn change(&self, change: impl FnOnce(&mut tombolo::Batch)) {
        change(&mut self.batch.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self) -> tombolo::Batch {
        std::mem::take(&mut self.batch.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl Batch {
    /// Adds a put.
    fn put(&self, python: Python<'_>, keyspace: &Keyspace, key: Given, value: Given) {
        self.change(|batch| {
            batch.put(keyspace.keyspace(), key.bytes(python), value.bytes(python));
        });
    }

    /// Adds a delete.
    fn delete(&self, python: Python<'_>, keyspace: &Keyspace, key: Given) {
        self.change(|batch| {
            batch.delete(keyspace.keyspace(), key.bytes(python));
        });
    }

    /// Adds a delete of all keys from `start` on and before `end`.
    fn delete_range(&self, python: Python<'_>, keyspace: &Keyspace, start: Given, end: Given) {
        self.change(|batch| {
            batch.delete_range(keyspace.keyspace(), start.bytes(python), end.bytes(python));
        });
    }

    /// Adds a merge.
    fn merge(&self, python: Python<'_>, keyspace: &Keyspace, key: Given, operand: Given) {
        self.change(|batch| {
            batch.merge(keyspace.keyspace(), key.bytes(python), operand.bytes(python));
        });
    }

    fn __len__(&self) -> usize {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets all writes in it.
    fn clear(&self) {
        drop(self.take());
    }

    /// Writes it, whole or not at all; it is empty then.
    fn write(&self, python: Python<'_>) -> PyResult<()> {
        let batch = self.take();
        let database = self.database.get();
        python.detach(|| database.db.write_with(batch, self.durability).wait()).or_raise()
    }

    /// Begins to write it; a future of asyncio.
    fn awrite<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let database = self.database.get();
        let start = || database.db.write_with(self.take(), self.durability);
        begin(python, &database.env, start, |python, ()| Ok(python.None()))
    }

    fn __enter__(slf: Py<Batch>) -> Py<Batch> {
        slf
    }

    fn __exit__(
        &self,
        python: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.write(python);
        }
        self.clear();
        Ok(())
    }
}
