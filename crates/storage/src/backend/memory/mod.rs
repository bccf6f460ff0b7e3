//! `mem://name`: objects and logs in this process's memory, for tests, examples and data that may
//! be lost.
//!
//! Accepted and durable mean the same here: it survives as long as this process does. All handles
//! of one name share one store, so that a takeover inside a process works as it would between
//! processes.

mod log;
mod objects;

#[cfg(test)]
mod tests;

pub use log::MemoryLogStore;
pub use objects::MemoryObjectStore;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tombolo_env::Env;

use crate::{Error, ErrorKind, LogStore, ObjectStore, Result, Uri};

/// All stores in memory that know each other by name.
#[derive(Debug, Default)]
pub struct MemoryStores {
    objects: Mutex<BTreeMap<String, Arc<objects::Shared>>>,
    logs: Mutex<BTreeMap<String, Arc<log::Shared>>>,
}

impl MemoryStores {
    /// Those of this process.
    pub fn of_process() -> Arc<MemoryStores> {
        static STORES: OnceLock<Arc<MemoryStores>> = OnceLock::new();
        Arc::clone(STORES.get_or_init(Arc::default))
    }

    /// The object store `name`, made on first use.
    pub fn object_store(&self, env: &Env, name: &str) -> MemoryObjectStore {
        let shared = Arc::clone(self.objects.lock().entry(name.into()).or_default());
        MemoryObjectStore::new(env.clone(), name.into(), shared)
    }

    /// The log store `name`, made on first use.
    pub fn log_store(&self, env: &Env, name: &str) -> MemoryLogStore {
        let shared = Arc::clone(self.logs.lock().entry(name.into()).or_default());
        MemoryLogStore::new(env.clone(), name.into(), shared)
    }
}

fn name_of(uri: &Uri) -> Result<&str> {
    uri.allow_parameters(&[])?;
    if uri.rest.is_empty() || uri.rest.len() > 256 {
        return Err(Error::new(ErrorKind::Invalid, format!("{} names no store in memory", uri.shown()))
            .advice("give it a name of 1 to 256 bytes: mem://orders"));
    }
    Ok(&uri.rest)
}

/// The factory of `mem://` object stores.
pub(crate) fn open_object_store(env: &Env, uri: &Uri, stores: &MemoryStores) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(stores.object_store(env, name_of(uri)?)))
}

/// The factory of `mem://` log stores.
pub(crate) fn open_log_store(env: &Env, uri: &Uri, stores: &MemoryStores) -> Result<Arc<dyn LogStore>> {
    Ok(Arc::new(stores.log_store(env, name_of(uri)?)))
}
