//! How commands name a database, and open it.

use clap::Args;
use tombolo::{Builder, Db, Env, OpenMode, Options, Registry};

use crate::failure::Result;

/// A database: a store, a log, settings.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArguments {
    /// The store that holds the database, as a URI: file:///data/orders.
    #[arg(value_name = "URI")]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
}

/// How to open it.
#[derive(Args, Clone, Debug, Default)]
pub struct HowArguments {
    /// The log store, as a URI; the store's own log when not given. A database is always opened
    /// with the log it was created with.
    #[arg(long, value_name = "URI")]
    pub log: Option<String>,
    /// A setting of the database, as name=value; may be given several times. A wrong name lists
    /// them all.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

/// How a command that only reads may open.
#[derive(Args, Clone, Debug, Default)]
pub struct ReadArguments {
    /// Reads beside a live writer instead of taking the database over: shows what is in tables, not
    /// what is only in memory and the log.
    #[arg(long)]
    pub read_only: bool,
    /// Reads this checkpoint; no writer is disturbed.
    #[arg(long, value_name = "NAME")]
    pub checkpoint: Option<String>,
}

impl DatabaseArguments {
    /// The database, to do something with it that takes no handle.
    pub fn builder(&self) -> Result<Builder> {
        builder(&self.store, &self.how)
    }

    /// Opens the database for a command that only reads.
    pub fn open_to_read(&self, read: &ReadArguments) -> Result<Db> {
        match &read.checkpoint {
            Some(name) => Ok(self.builder()?.at_checkpoint(name).open_read_only().wait()?),
            None if read.read_only => Ok(self.builder()?.open_read_only().wait()?),
            None => self.open(OpenMode::Open),
        }
    }

    /// Opens the database; takes it over from whoever has it open.
    pub fn open(&self, mode: OpenMode) -> Result<Db> {
        open(&self.store, &self.how, mode)
    }
}

/// All stores that commands know: those of the library, and the near-compute log.
pub fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, crate::serve::Showing::default().credentials());
    registry
}

/// Opens the database at `store`.
pub fn open(store: &str, how: &HowArguments, mode: OpenMode) -> Result<Db> {
    Ok(builder(store, how)?.mode(mode).open().wait()?)
}

/// The database at `store`, to do something with it.
pub fn builder(store: &str, how: &HowArguments) -> Result<Builder> {
    let options = Options::parse(how.settings.iter().map(String::as_str))?;
    let builder = Db::builder(store).env(Env::real()).registry(registry()).options(options);
    Ok(match &how.log {
        Some(log) => builder.log(log),
        None => builder,
    })
}
