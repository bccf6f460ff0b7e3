//! The classes that others are made of; their methods are in modules of their own.

use std::sync::Mutex;

use pyo3::prelude::*;
use tombolo::{BlockingKeyspace, Db, Durability, Env, Savepoint};

use crate::error::Invalid;

/// An open database. Close it, or use it in a `with`.
#[pyclass(frozen)]
pub struct Database {
    pub db: Db,
    pub env: Env,
}

/// All keyspaces as they were at one moment. It keeps what it sees until the object is gone.
#[pyclass(frozen)]
pub struct Snapshot(pub tombolo::Snapshot);

/// A keyspace: a dictionary of bytes, in the order of its keys.
#[pyclass(frozen)]
pub struct Keyspace {
    pub blocking: BlockingKeyspace,
    pub env: Env,
}

impl Keyspace {
    /// The engine's handle.
    pub fn keyspace(&self) -> &tombolo::Keyspace {
        self.blocking.keyspace()
    }
}

/// Writes that take effect whole or not at all.
#[pyclass(frozen)]
pub struct Batch {
    pub database: Py<Database>,
    pub durability: Durability,
    pub batch: Mutex<tombolo::Batch>,
}

/// What a transaction is while it runs.
pub struct Running {
    pub inner: tombolo::Transaction,
    pub savepoints: Vec<Savepoint>,
}

/// Reads and writes of several keys as if nobody else were there. A `with` commits it at its end,
/// unless it is left by an exception.
#[pyclass(frozen)]
pub struct Transaction(pub Mutex<Option<Running>>);

/// A durability by its name.
pub fn durability(name: &str) -> PyResult<Durability> {
    match name {
        "durable" => Ok(Durability::Durable),
        "accepted" => Ok(Durability::Accepted),
        "unlogged" => Ok(Durability::Unlogged),
        other => {
            let message = format!("durability={other:?}: there are durable, accepted and unlogged");
            Err(Invalid::new_err(message))
        }
    }
}
