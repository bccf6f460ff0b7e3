//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{Env, TaskClass};
use tombolo_storage::{LogStore, ObjectStore, Registry, Result};

use crate::budget::MemoryBudget;
use crate::db::Db;
use crate::engine::Engine;
use crate::op::Op;
use crate::options::{OpenMode, Options};
use crate::{lifecycle, recovery};

/// What to open, and how. Made by [`Db::builder`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open()`"]
pub struct Builder {
    pub(crate) uri: String,
    pub(crate) log: Option<String>,
    pub(crate) env: Option<Env>,
    pub(crate) registry: Option<Registry>,
    pub(crate) stores: Option<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)>,
    pub(crate) mode: OpenMode,
    pub(crate) options: Options,
    pub(crate) deadline: Option<Duration>,
    pub(crate) budget: Option<Arc<MemoryBudget>>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Builder").field("uri", &self.uri).field("log", &self.log).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(uri: String) -> Builder {
        Builder {
            uri,
            log: None,
            env: None,
            registry: None,
            stores: None,
            mode: OpenMode::default(),
            options: Options::default(),
            deadline: None,
            budget: None,
        }
    }

    /// The log store's URI (`file:///path?form=written`). Default: the object store's own log.
    pub fn log(mut self, uri: impl Into<String>) -> Builder {
        self.log = Some(uri.into());
        self
    }

    /// The world. Default: the real one.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = Some(env);
        self
    }

    /// The schemes that URIs may have. Default: `file` and `mem`.
    pub fn registry(mut self, registry: Registry) -> Builder {
        self.registry = Some(registry);
        self
    }

    /// Ready-made stores instead of URIs; the builder's URI is then only for messages.
    pub fn stores(mut self, objects: Arc<dyn ObjectStore>, log: Arc<dyn LogStore>) -> Builder {
        self.stores = Some((objects, log));
        self
    }

    /// Whether opening may create. Default: it may.
    pub fn mode(mut self, mode: OpenMode) -> Builder {
        self.mode = mode;
        self
    }

    /// Settings.
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// A memory budget, and with it a block cache, that several databases of the process share. Default: one of the database's own, of
    /// [`Options::memory_bytes`]. With a shared one, `memory_bytes` only says from which memory `memtable_bytes` follows, if it is smaller.
    pub fn memory_budget(mut self, budget: &Arc<MemoryBudget>) -> Builder {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// How long opening may take before it gives up with `DeadlineExceeded`; the claim may then stand. Default: no limit.
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.deadline = Some(deadline);
        self
    }

    /// Opens: `read manifest → claim → fence the logs → replay → serve`. A process that has the database open learns at its next write
    /// that it is fenced.
    ///
    /// # Errors
    /// `NotFound` or `AlreadyExists` against the mode; `Invalid` for a wrong URI or setting, a memory budget too small for all who share it, or
    /// another log than the database was created with; `Unsupported` for a newer format; `Corrupt`; `DeadlineExceeded`; those of the stores.
    pub fn open(self) -> Op<Db> {
        if let Err(error) = self.options.check() {
            return Op::ready(Err(error));
        }
        let env = self.env.clone().unwrap_or_else(Env::real);
        let deadline = self.deadline.map(|deadline| env.now() + deadline);
        let world = env.clone();
        Op::start(&env, TaskClass::Foreground, "open", async move {
            let open = open(self, world.clone());
            lifecycle::until(&world, deadline, open).await.map(Db::new)
        })
    }

    /// Destroys the database: its chain of records ends for ever, its objects are deleted. Creating at the same URI makes another one.
    ///
    /// # Errors
    /// `NotFound`; those of the stores.
    pub fn destroy(self) -> Op<()> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        let deadline = self.deadline.map(|deadline| env.now() + deadline);
        let world = env.clone();
        Op::start(&env, TaskClass::Foreground, "destroy", async move {
            let destroy = destroy(self, world.clone());
            lifecycle::until(&world, deadline, destroy).await
        })
    }
}

fn stores(builder: &Builder, env: &Env) -> Result<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)> {
    if let Some((objects, log)) = &builder.stores {
        return Ok((Arc::clone(objects), Arc::clone(log)));
    }
    let registry = builder.registry.clone().unwrap_or_else(Registry::with_defaults);
    let store = tombolo_storage::Uri::parse(&builder.uri)?;
    let log = builder.log.as_deref().map(tombolo_storage::Uri::parse).transpose()?;
    let objects = registry.open_object_store(env, &store)?;
    let log_store = registry.open_log_store(env, &store, log.as_ref(), &objects)?;
    Ok((objects, log_store))
}

fn request(builder: Builder, env: Env) -> Result<recovery::Request> {
    let (objects, log_store) = stores(&builder, &env)?;
    let Builder { uri, mode, mut options, budget, .. } = builder;
    let budget = match budget {
        Some(budget) => budget,
        None => MemoryBudget::private(options.memory_bytes)?,
    };
    options.memory_bytes = options.memory_bytes.min(budget.bytes());
    Ok(recovery::Request { env, place: uri, objects, log_store, mode, options, budget })
}

async fn open(builder: Builder, env: Env) -> Result<Arc<Engine>> {
    recovery::open(request(builder, env)?).await
}

async fn destroy(builder: Builder, env: Env) -> Result<()> {
    recovery::destroy(request(builder, env)?).await
}
