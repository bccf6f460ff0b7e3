//! Databases and snapshots.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tombolo::{
    Builder, Db, Env, KeyspaceOptions, OpenMode, Options, Registry, TakeOver, TransactionOutcome, Uri,
};

use crate::buffer::Given;
use crate::error::{Invalid, OrRaise};
use crate::handles::{Batch, Database, Keyspace, Snapshot, Transaction, durability};
use crate::transaction;

/// A setting's value as text: `True` is `true`, numbers are as they are.
fn setting(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(match value.extract::<bool>() {
        Ok(truth) => truth.to_string(),
        Err(_) => value.str()?.to_cow()?.into_owned(),
    })
}

fn builder(
    uri: &str,
    mode: &str,
    log: Option<&str>,
    take_over: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<(Builder, Env)> {
    let uri = if uri.contains("://") { uri.to_owned() } else { Uri::from_path(uri).or_raise()?.to_string() };
    let mut options = Options::default();
    for (name, value) in settings.into_iter().flatten() {
        options.set(&name.extract::<String>()?, &setting(&value)?).or_raise()?;
    }
    let mode = match mode {
        "open_or_create" | "read" => OpenMode::CreateOrOpen,
        "open" => OpenMode::Open,
        "create" => OpenMode::Create,
        other => {
            let message = format!("mode={other:?}: there are open_or_create, open, create and read");
            return Err(Invalid::new_err(message));
        }
    };
    let take_over = match take_over {
        "others" => TakeOver::default(),
        "always" => TakeOver::Always,
        "never" => TakeOver::Never,
        other => {
            return Err(Invalid::new_err(format!("take_over={other:?}: there are others, always and never")));
        }
    };
    let env = Env::real();
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, Ok(None));
    let builder = Db::builder(uri).env(env.clone()).registry(registry).mode(mode);
    let builder = builder.take_over(take_over).options(options);
    Ok((log.into_iter().fold(builder, Builder::log), env))
}

/// Opens the database at a path or a URI; settings follow by name.
#[pyfunction]
#[pyo3(signature = (uri, *, mode = "open_or_create", log = None, take_over = "others", **settings))]
pub fn open(
    python: Python<'_>,
    uri: &str,
    mode: &str,
    log: Option<&str>,
    take_over: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let (builder, env) = builder(uri, mode, log, take_over, settings)?;
    let reads = mode == "read";
    let opened = python.detach(|| if reads { builder.open_read_only() } else { builder.open() }.wait());
    Ok(Database { db: opened.or_raise()?, env })
}

/// Deletes all of the database at a path or a URI.
#[pyfunction]
#[pyo3(signature = (uri, *, log = None, take_over = "others"))]
pub fn destroy(python: Python<'_>, uri: &str, log: Option<&str>, take_over: &str) -> PyResult<()> {
    let (builder, _env) = builder(uri, "open", log, take_over, None)?;
    python.detach(|| builder.destroy().wait()).or_raise()?;
    Ok(())
}

#[pymethods]
impl Database {
    /// A keyspace by its name; with `create` it is made if it is not there, with these settings.
    #[pyo3(signature = (name = "default", *, create = false, **settings))]
    fn keyspace(
        &self,
        python: Python<'_>,
        name: &str,
        create: bool,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Keyspace> {
        let keyspace = if create {
            let mut options = KeyspaceOptions::default();
            for (name, value) in settings.into_iter().flatten() {
                options.set(&name.extract::<String>()?, &setting(&value)?).or_raise()?;
            }
            python.detach(|| self.db.blocking().open_or_create_keyspace(name, options)).or_raise()?
        } else {
            self.db.blocking().keyspace(name).or_raise()?
        };
        Ok(Keyspace { blocking: keyspace, env: self.env.clone() })
    }

    fn __getitem__(&self, python: Python<'_>, name: &str) -> PyResult<Keyspace> {
        self.keyspace(python, name, false, None)
    }

    /// The names of all keyspaces.
    fn keyspaces(&self) -> Vec<String> {
        self.db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect()
    }

    /// Drops a keyspace with all in it.
    fn drop_keyspace(&self, python: Python<'_>, name: &str) -> PyResult<()> {
        python.detach(|| self.db.drop_keyspace(name).wait()).or_raise()
    }

    /// A batch, which a `with` writes at its end, unless it is left by an exception.
    #[pyo3(signature = (*, durability = "durable"))]
    fn batch(slf: Py<Database>, durability: &str) -> PyResult<Batch> {
        Ok(Batch { database: slf, durability: self::durability(durability)?, batch: Mutex::default() })
    }

    /// A transaction over all keyspaces, which a `with` commits at its end, unless it is left by an
    /// exception. `locking` is optimistic or pessimistic, `isolation` snapshot or serializable,
    /// `lock_wait` is in seconds; `id` is a name by which `outcome` says what became of it.
    #[pyo3(signature = (*, locking = "optimistic", isolation = "snapshot", durability = "durable",
        lock_wait = None, id = None))]
    fn transaction(
        &self,
        python: Python<'_>,
        locking: &str,
        isolation: &str,
        durability: &str,
        lock_wait: Option<f64>,
        id: Option<Given>,
    ) -> PyResult<Transaction> {
        let id = id.map(|id| id.bytes(python).to_vec());
        transaction::begin(self, (locking, isolation, durability), lock_wait, id)
    }

    /// Commits a prepared transaction, or rolls it back.
    fn decide(&self, python: Python<'_>, id: Given, commits: bool) -> PyResult<()> {
        let id = id.bytes(python);
        python.detach(|| self.db.decide(id, commits).wait()).or_raise()
    }

    /// The ids of prepared transactions that wait for their decision.
    fn in_doubt<'py>(&self, python: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = python.detach(|| self.db.in_doubt().wait()).or_raise()?;
        Ok(all.iter().map(|one| PyBytes::new(python, &one.id)).collect())
    }

    /// What became of a transaction with this id: committed, rolled back, in doubt, or None.
    fn outcome(&self, python: Python<'_>, id: Given) -> PyResult<Option<&'static str>> {
        let id = id.bytes(python);
        let outcome = python.detach(|| self.db.transaction_outcome(id).wait()).or_raise()?;
        Ok(outcome.map(|outcome| match outcome {
            TransactionOutcome::Committed => "committed",
            TransactionOutcome::RolledBack => "rolled back",
            TransactionOutcome::InDoubt => "in doubt",
        }))
    }

    /// All keyspaces as they are now.
    fn snapshot(&self) -> Snapshot {
        Snapshot(self.db.snapshot())
    }

    /// Makes durable what was accepted before.
    fn sync(&self, python: Python<'_>) -> PyResult<()> {
        python.detach(|| self.db.sync().wait()).or_raise()
    }

    /// Writes all that is in memory to tables.
    fn flush(&self, python: Python<'_>) -> PyResult<()> {
        python.detach(|| self.db.flush().wait()).or_raise()
    }

    /// Merges the tables of each keyspace into one run.
    fn compact(&self, python: Python<'_>) -> PyResult<()> {
        python.detach(|| self.db.compact().wait()).or_raise()
    }

    /// Makes a checkpoint of that name.
    fn checkpoint(&self, python: Python<'_>, name: &str) -> PyResult<()> {
        python.detach(|| self.db.checkpoint(name).wait()).or_raise()?;
        Ok(())
    }

    /// The names of all checkpoints, oldest first.
    fn checkpoints(&self, python: Python<'_>) -> PyResult<Vec<String>> {
        let all = python.detach(|| self.db.checkpoints().wait()).or_raise()?;
        Ok(all.into_iter().map(|checkpoint| checkpoint.name).collect())
    }

    /// Deletes a checkpoint.
    fn delete_checkpoint(&self, python: Python<'_>, name: &str) -> PyResult<()> {
        python.detach(|| self.db.delete_checkpoint(name).wait()).or_raise()
    }

    /// All that the database says of itself, by name: numbers, and texts.
    fn properties<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(python);
        for property in python.detach(|| self.db.properties()) {
            match property.value.number() {
                Some(number) => all.set_item(property.name, number)?,
                None => all.set_item(property.name, property.value.to_string())?,
            }
        }
        Ok(all)
    }

    /// The same as Prometheus reads it.
    fn metrics(&self, python: Python<'_>, database: &str) -> String {
        python.detach(|| self.db.metrics_text(database))
    }

    /// Changes settings of the open database.
    #[pyo3(signature = (**settings))]
    fn set_options(&self, settings: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let mut all = Vec::new();
        for (name, value) in settings.into_iter().flatten() {
            all.push((name.extract::<String>()?, setting(&value)?));
        }
        self.db.set_options(all.iter().map(|(name, value)| (name.as_str(), value.as_str()))).or_raise()
    }

    /// Makes accepted writes durable and ends the database; closing twice is fine.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        match python.detach(|| self.db.close().wait()) {
            Err(error) if error.kind() == tombolo::ErrorKind::Closed => Ok(()),
            closed => closed.or_raise(),
        }
    }

    fn __enter__(slf: Py<Database>) -> Py<Database> {
        slf
    }

    fn __exit__(
        &self,
        python: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(python)
    }
}

#[pymethods]
impl Snapshot {
    /// The value of a key then, or `default`.
    #[pyo3(signature = (keyspace, key, default = None))]
    fn get(
        &self,
        python: Python<'_>,
        keyspace: &Keyspace,
        key: Given,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let key = key.bytes(python);
        let found = python.detach(|| self.0.get(keyspace.keyspace(), key).wait()).or_raise()?;
        Ok(found.map(|value| PyBytes::new(python, &value).into_any().unbind()).or(default))
    }

    /// The newest sequence number that it sees.
    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence()
    }

    fn __enter__(slf: Py<Snapshot>) -> Py<Snapshot> {
        slf
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {}
}
