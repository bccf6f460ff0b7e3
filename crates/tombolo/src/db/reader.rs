//! A database that is read beside its writer.

use std::fmt;
use std::time::Duration;

use tombolo_env::TaskClass;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::{Db, Keyspace, Snapshot};
use crate::op::Op;
use crate::reader;

/// An open database that follows its writer, on this machine or another, and disturbs it by
/// nothing.
///
/// It shows **durable** writes: every logged write that was acknowledged as durable longer ago
/// than the stated lag, in their order, batches whole; and what tables hold. No takeover takes back
/// what it has shown. Writes that are only accepted, or unlogged, appear once they are durable or
/// flushed. Each read and each [`Snapshot`] is one consistent cut of all keyspaces.
///
/// The tables that it looks at are pinned under a lease, so that the writer does not delete them;
/// see [`crate::ReaderOptions`] and [`Reader::lag`].
///
/// ```no_run
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::{Db, ReaderOptions};
///
/// let reader = Db::open_reader("file:///var/lib/orders", ReaderOptions::default()).wait()?;
/// let orders = reader.keyspace("orders")?;
/// println!("{:?}, as of {:?} ago", orders.get(b"1").wait()?, reader.lag());
/// reader.close().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reader {
    db: Db,
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").field("db", &self.db).field("lag", &self.lag()).finish()
    }
}

impl Reader {
    pub(crate) fn new(db: Db) -> Reader {
        Reader { db }
    }

    /// The database, for all verbs that read; those that write end with `PermissionDenied`.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// As [`Db::keyspace`].
    ///
    /// # Errors
    /// `NotFound`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.db.keyspace(name)
    }

    /// As [`Db::default_keyspace`].
    pub fn default_keyspace(&self) -> Keyspace {
        self.db.default_keyspace()
    }

    /// As [`Db::snapshot`]: it keeps what it sees, tables included, for as long as the lease is
    /// renewed.
    pub fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    /// How old the shown state may be: everything that was acknowledged as durable before is
    /// visible.
    pub fn lag(&self) -> Duration {
        self.db.age().unwrap_or_default()
    }

    /// What the last attempt to come up to date failed with, if it did; it is made again all the
    /// time.
    pub fn error(&self) -> Option<Error> {
        self.db.engine().following().and_then(|following| following.error())
    }

    /// Comes up to date now: when it ends, everything that was acknowledged as durable before the
    /// call is visible. A read and a list of the store, and a look at the log.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Closed`; those of the stores.
    pub fn refresh(&self) -> Op<()> {
        let engine = std::sync::Arc::clone(self.db.engine());
        if engine.has_stopped() {
            return Op::ready(Err(Error::new(ErrorKind::Closed, "the reader was closed")));
        }
        let env = engine.env.clone();
        Op::start(&env, TaskClass::Foreground, "refresh", async move { reader::refresh(&engine).await })
    }

    /// Ends it and gives its pins back.
    ///
    /// # Errors
    /// None so far.
    pub fn close(&self) -> Op<()> {
        self.db.close()
    }
}
