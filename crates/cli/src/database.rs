//! How commands name a database, and open it.

use clap::Args;
use tombolo::{Db, Env, OpenMode, Options};

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
    /// The log store, as a URI; the store's own log when not given. A database is always opened with the log it was created with.
    #[arg(long, value_name = "URI")]
    pub log: Option<String>,
    /// A setting of the database, as name=value; may be given several times. A wrong name lists them all.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

impl DatabaseArguments {
    /// Opens the database; takes it over from whoever has it open.
    pub fn open(&self, mode: OpenMode) -> Result<Db> {
        open(&self.store, &self.how, mode)
    }
}

/// Opens the database at `store`.
pub fn open(store: &str, how: &HowArguments, mode: OpenMode) -> Result<Db> {
    let options = Options::parse(how.settings.iter().map(String::as_str))?;
    let mut builder = Db::builder(store).env(Env::real()).mode(mode).options(options);
    if let Some(log) = &how.log {
        builder = builder.log(log);
    }
    Ok(builder.open().wait()?)
}
