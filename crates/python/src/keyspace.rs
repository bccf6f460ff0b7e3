//! Keyspaces as dictionaries of bytes.

use std::time::Duration;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::asynchronous::begin;
use crate::buffer::{Given, Value};
use crate::columns::columns;
use crate::error::{Invalid, OrRaise};
use crate::handles::{Keyspace, Snapshot, durability};
use crate::scan::{Entries, Items, Part, cursor};

impl Keyspace {
    fn items_of(
        &self,
        part: Part,
        range: (Option<Given>, Option<Given>, Option<Given>),
        (reverse, snapshot): (bool, Option<&Snapshot>),
        python: Python<'_>,
    ) -> PyResult<Items> {
        Ok(Items::new(Entries::OfKeyspace(cursor(self.keyspace(), range, snapshot, python)?), part, reverse))
    }
}

/// A time to live, in seconds.
pub fn ttl(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Invalid::new_err(format!("ttl={seconds}: seconds above 0 are expected")))
}

#[pymethods]
impl Keyspace {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.keyspace().name()
    }

    fn __repr__(&self) -> String {
        format!("<tombolo.Keyspace {:?}>", self.keyspace().name())
    }

    fn __getitem__<'py>(&self, python: Python<'py>, key: Given) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = key.bytes(python);
        let found = python.detach(|| self.blocking.get(bytes)).or_raise()?;
        let missing = || PyKeyError::new_err(PyBytes::new(python, bytes).unbind());
        found.map(|value| PyBytes::new(python, &value)).ok_or_else(missing)
    }

    fn __setitem__(&self, python: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.put(python, key, value, "durable", None)
    }

    fn __delitem__(&self, python: Python<'_>, key: Given) -> PyResult<()> {
        self.delete(python, key, "durable")
    }

    fn __contains__(&self, python: Python<'_>, key: Given) -> PyResult<bool> {
        let key = key.bytes(python);
        Ok(python.detach(|| self.blocking.get_with(key, |_| ())).or_raise()?.is_some())
    }

    fn __iter__(&self, python: Python<'_>) -> PyResult<Items> {
        self.items_of(Part::Keys, (None, None, None), (false, None), python)
    }

    fn __reversed__(&self, python: Python<'_>) -> PyResult<Items> {
        self.items_of(Part::Keys, (None, None, None), (true, None), python)
    }

    /// The value of a key as bytes, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get(&self, python: Python<'_>, key: Given, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let key = key.bytes(python);
        let found = python.detach(|| self.blocking.get(key)).or_raise()?;
        Ok(found.map(|value| PyBytes::new(python, &value).into_any().unbind()).or(default))
    }

    /// The value of a key without a copy, or None: `memoryview(keyspace.view(key))`.
    fn view(&self, python: Python<'_>, key: Given) -> PyResult<Option<Value>> {
        let key = key.bytes(python);
        Ok(python.detach(|| self.blocking.get(key)).or_raise()?.map(Value))
    }

    /// The values of several keys at one moment, None where there is none.
    fn get_many<'py>(
        &self,
        python: Python<'py>,
        keys: Vec<Given>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.bytes(python)).collect();
        let found = python.detach(|| self.blocking.multi_get(&keys)).or_raise()?;
        Ok(found.into_iter().map(|value| value.map(|value| PyBytes::new(python, &value))).collect())
    }

    /// Stores a value; `ttl` is how many seconds it lives.
    #[pyo3(signature = (key, value, *, durability = "durable", ttl = None))]
    fn put(
        &self,
        python: Python<'_>,
        key: Given,
        value: Given,
        durability: &str,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let survives = crate::handles::durability(durability)?;
        let ttl = ttl.map(self::ttl).transpose()?;
        let (key, value) = (key.bytes(python), value.bytes(python));
        python
            .detach(|| match ttl {
                None => self.blocking.put_with(key, value, survives),
                Some(ttl) => self.blocking.put_ttl_with(key, value, ttl, survives),
            })
            .or_raise()
    }

    /// Removes a key, there or not.
    #[pyo3(signature = (key, *, durability = "durable"))]
    fn delete(&self, python: Python<'_>, key: Given, durability: &str) -> PyResult<()> {
        let (key, survives) = (key.bytes(python), crate::handles::durability(durability)?);
        python.detach(|| self.blocking.delete_with(key, survives)).or_raise()
    }

    /// Removes all keys from `start` on and before `end`.
    #[pyo3(signature = (start, end, *, durability = "durable"))]
    fn delete_range(&self, python: Python<'_>, start: Given, end: Given, durability: &str) -> PyResult<()> {
        let survives = crate::handles::durability(durability)?;
        let (start, end) = (start.bytes(python), end.bytes(python));
        python.detach(|| self.blocking.delete_range_with(start, end, survives)).or_raise()
    }

    /// Merges an operand into the value of a key, by the keyspace's operator.
    #[pyo3(signature = (key, operand, *, durability = "durable"))]
    fn merge(&self, python: Python<'_>, key: Given, operand: Given, durability: &str) -> PyResult<()> {
        let survives = crate::handles::durability(durability)?;
        let (key, operand) = (key.bytes(python), operand.bytes(python));
        python.detach(|| self.blocking.merge_with(key, operand, survives)).or_raise()
    }

    /// Keys in order: from `start` on and before `end`, or those that begin with `prefix`.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, snapshot = None))]
    fn keys(
        &self,
        python: Python<'_>,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Items> {
        self.items_of(Part::Keys, (start, end, prefix), (reverse, snapshot), python)
    }

    /// Values in the order of their keys; as `keys`.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, snapshot = None))]
    fn values(
        &self,
        python: Python<'_>,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Items> {
        self.items_of(Part::Values, (start, end, prefix), (reverse, snapshot), python)
    }

    /// Keys with their values in order; as `keys`.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, snapshot = None))]
    fn items(
        &self,
        python: Python<'_>,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Items> {
        self.items_of(Part::Both, (start, end, prefix), (reverse, snapshot), python)
    }

    /// Columns of all entries, for `to_arrow`: their number, then offsets and bytes of keys, then
    /// of values.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, limit = None, snapshot = None))]
    fn _columns<'py>(
        &self,
        python: Python<'py>,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
        limit: Option<usize>,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        columns(cursor(self.keyspace(), (start, end, prefix), snapshot, python)?, limit, python)
    }

    /// Begins a get; a future of asyncio.
    fn aget<'py>(&self, python: Python<'py>, key: Given) -> PyResult<Bound<'py, PyAny>> {
        let start = || self.keyspace().get(key.bytes(python));
        begin(python, &self.env, start, |python, value| {
            Ok(value
                .map(|value| PyBytes::new(python, &value).into_any().unbind())
                .unwrap_or_else(|| python.None()))
        })
    }

    /// Begins a put; a future of asyncio.
    #[pyo3(signature = (key, value, *, durability = "durable"))]
    fn aput<'py>(
        &self,
        python: Python<'py>,
        key: Given,
        value: Given,
        durability: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let survives = self::durability(durability)?;
        let start = || self.keyspace().put_with(key.bytes(python), value.bytes(python), survives);
        begin(python, &self.env, start, |python, ()| Ok(python.None()))
    }

    /// Begins a delete; a future of asyncio.
    #[pyo3(signature = (key, *, durability = "durable"))]
    fn adelete<'py>(&self, python: Python<'py>, key: Given, durability: &str) -> PyResult<Bound<'py, PyAny>> {
        let survives = self::durability(durability)?;
        let start = || self.keyspace().delete_with(key.bytes(python), survives);
        begin(python, &self.env, start, |python, ()| Ok(python.None()))
    }
}
