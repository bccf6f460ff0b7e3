//! URIs to stores. `file:///path?log=mapped`, `mem://name`; one call registers further schemes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tombolo_env::Env;

use crate::{Error, ErrorKind, LogStore, ObjectStore, Result};

/// A checked URI: `scheme://rest?name=value&…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Before `://`.
    pub scheme: String,
    /// Between `://` and `?`.
    pub rest: String,
    /// Parameters by name.
    pub parameters: BTreeMap<String, String>,
}

/// Makes an object store.
pub type ObjectStoreFactory = Arc<dyn Fn(&Env, &Uri) -> Result<Arc<dyn ObjectStore>> + Send + Sync>;
/// Makes a log store; gets the paired object store.
pub type LogStoreFactory = Arc<dyn Fn(&Env, &Uri, &Arc<dyn ObjectStore>) -> Result<Arc<dyn LogStore>> + Send + Sync>;

/// Schemes and their factories.
#[derive(Clone, Default)]
pub struct Registry {
    object_stores: BTreeMap<String, ObjectStoreFactory>,
    log_stores: BTreeMap<String, LogStoreFactory>,
}
