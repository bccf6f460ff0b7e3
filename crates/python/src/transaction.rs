//! Transactions as context managers.

use std::ops::Bound as End;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tombolo::{Isolation, Locking, Op, Transaction as Inner, TransactionOptions};

use crate::buffer::Given;
use crate::error::{Invalid, OrRaise};
use crate::handles::{Database, Keyspace, Running, Transaction, durability};
use crate::keyspace::ttl;
use crate::scan::{Entries, Items, Part, range_of};

/// What a transaction was asked for after its end.
fn ended() -> PyErr {
    Invalid::new_err("the transaction has ended: begin another one")
}

/// Begins one, as `Database.transaction` says.
pub fn begin(
    database: &Database,
    (locking, isolation, durability): (&str, &str, &str),
    lock_wait: Option<f64>,
    id: Option<Vec<u8>>,
) -> PyResult<Transaction> {
    let mut options = TransactionOptions { id, ..TransactionOptions::default() };
    options.durability = self::durability(durability)?;
    options.locking = match locking {
        "optimistic" => Locking::Optimistic,
        "pessimistic" => Locking::Pessimistic,
        other => {
            let message = format!("locking={other:?}: there are optimistic and pessimistic");
            return Err(Invalid::new_err(message));
        }
    };
    options.isolation = match isolation {
        "snapshot" => Isolation::Snapshot,
        "serializable" => Isolation::Serializable,
        other => {
            let message = format!("isolation={other:?}: there are snapshot and serializable");
            return Err(Invalid::new_err(message));
        }
    };
    if let Some(seconds) = lock_wait {
        options.lock_wait = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Invalid::new_err(format!("lock_wait={seconds}: seconds are expected")))?;
    }
    let inner = database.db.transaction_with(options);
    Ok(Transaction(Mutex::new(Some(Running { inner, savepoints: Vec::new() }))))
}

impl Transaction {
    fn with<T>(&self, what: impl FnOnce(&mut Running) -> PyResult<T>) -> PyResult<T> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        what(running.as_mut().ok_or_else(ended)?)
    }

    /// Starts an operation, and waits for it while others may use the interpreter.
    fn wait<T: Send + 'static>(
        &self,
        python: Python<'_>,
        start: impl FnOnce(&Inner) -> Op<T> + Send,
    ) -> PyResult<T> {
        python
            .detach(|| {
                let op = {
                    let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    running.as_ref().map(|running| start(&running.inner))
                };
                op.map(Op::wait)
            })
            .ok_or_else(ended)?
            .or_raise()
    }

    fn take(&self) -> PyResult<Inner> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        running.map(|running| running.inner).ok_or_else(ended)
    }
}

#[pymethods]
impl Transaction {
    /// The value of a key as the transaction sees it, or `default`. With `for_update` it counts as
    /// written.
    #[pyo3(signature = (keyspace, key, default = None, *, for_update = false))]
    fn get(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        key: Given,
        default: Option<Py<PyAny>>,
        for_update: bool,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (key, keyspace) = (key.bytes(python), keyspace.keyspace());
        let found = self.wait(python, |inner| {
            if for_update { inner.get_for_update(keyspace, key) } else { inner.get(keyspace, key) }
        })?;
        Ok(found.map(|value| PyBytes::new(python, &value).into_any().unbind()).or(default))
    }

    /// Stores a value; `ttl` is how many seconds it lives.
    #[pyo3(signature = (keyspace, key, value, *, ttl = None))]
    fn put(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        key: Given,
        value: Given,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let lives = ttl.map(self::ttl).transpose()?;
        let (keyspace, key, value) = (keyspace.keyspace(), key.bytes(python), value.bytes(python));
        self.wait(python, |inner| match lives {
            None => inner.put(keyspace, key, value),
            Some(lives) => inner.put_ttl(keyspace, key, value, lives),
        })
    }

    /// Removes a key, there or not.
    fn delete(&self, python: Python<'_>, keyspace: &Keyspace, key: Given) -> PyResult<()> {
        let (keyspace, key) = (keyspace.keyspace(), key.bytes(python));
        self.wait(python, |inner| inner.delete(keyspace, key))
    }

    /// Removes all keys from `start` on and before `end`.
    fn delete_range(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        start: Given,
        end: Given,
    ) -> PyResult<()> {
        let (keyspace, start, end) = (keyspace.keyspace(), start.bytes(python), end.bytes(python));
        self.wait(python, |inner| inner.delete_range(keyspace, start, end))
    }

    /// Merges an operand into the value of a key.
    fn merge(&self, python: Python<'_>, keyspace: &Keyspace, key: Given, operand: Given) -> PyResult<()> {
        let (keyspace, key, operand) = (keyspace.keyspace(), key.bytes(python), operand.bytes(python));
        self.wait(python, |inner| inner.merge(keyspace, key, operand))
    }

    /// Locks all keys of a range, those that are not there included.
    #[pyo3(signature = (keyspace, start = None, end = None, *, prefix = None))]
    fn lock_range(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
    ) -> PyResult<()> {
        let range: (End<Vec<u8>>, End<Vec<u8>>) = range_of((start, end, prefix), python)?;
        let keyspace = keyspace.keyspace();
        self.wait(python, move |inner| inner.lock_range(keyspace, range))
    }

    /// Keys and values of a range as the transaction sees them now.
    #[pyo3(signature = (keyspace, start = None, end = None, *, prefix = None, reverse = false))]
    fn items(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        start: Option<Given>,
        end: Option<Given>,
        prefix: Option<Given>,
        reverse: bool,
    ) -> PyResult<Items> {
        let range = range_of((start, end, prefix), python)?;
        let cursor = self.with(|running| Ok(running.inner.cursor(keyspace.keyspace(), range)))?;
        Ok(Items::new(Entries::OfTransaction(Box::new(cursor)), Part::Both, reverse))
    }

    /// Sets a savepoint on top of those that are set.
    fn set_savepoint(&self) -> PyResult<()> {
        self.with(|running| {
            let savepoint = running.inner.savepoint().or_raise()?;
            running.savepoints.push(savepoint);
            Ok(())
        })
    }

    /// Undoes all writes since the newest savepoint, and takes that away.
    fn roll_back_to_savepoint(&self) -> PyResult<()> {
        self.with(|running| {
            let savepoint =
                running.savepoints.pop().ok_or_else(|| Invalid::new_err("no savepoint is set"))?;
            running.inner.roll_back_to(savepoint).or_raise()
        })
    }

    /// Commits it: all of its writes, or none. The number of the commit.
    fn commit(&self, python: Python<'_>) -> PyResult<u64> {
        let inner = self.take()?;
        python.detach(|| inner.commit().wait()).or_raise()
    }

    /// Undoes it, and ends it.
    fn roll_back(&self) -> PyResult<()> {
        self.take()?.roll_back();
        Ok(())
    }

    /// Makes it durable under an id without an effect yet: `Database.decide` ends it.
    fn prepare(&self, python: Python<'_>, id: Given) -> PyResult<()> {
        let (inner, id) = (self.take()?, id.bytes(python));
        drop(python.detach(|| inner.prepare(id).wait()).or_raise()?);
        Ok(())
    }

    fn __enter__(slf: Py<Transaction>) -> Py<Transaction> {
        slf
    }

    fn __exit__(
        &self,
        python: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Ok(inner) = self.take() else { return Ok(()) };
        if kind.is_none() {
            python.detach(|| inner.commit().wait()).or_raise()?;
        }
        Ok(())
    }
}
