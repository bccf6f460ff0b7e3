//! A process that waits to take a database over.

use std::fmt;

use tombolo_env::Env;
use tombolo_storage::Epoch;

use crate::db::Db;
use crate::op::Op;
use crate::standby::Watch;

/// A process that stands by for a database: it has its newest state in memory, watches its writer,
/// and takes over once that is gone.
///
/// ```no_run
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::{Db, StandbyOptions};
///
/// let standby = Db::builder("file:///var/lib/orders").stand_by(StandbyOptions::default()).wait()?;
/// let db = standby.take_over().wait()?; // for as long as the writer lives
/// db.default_keyspace().put(b"written by", b"the new writer").wait()?;
/// # Ok(())
/// # }
/// ```
pub struct Standby {
    env: Env,
    watch: Watch,
}

impl fmt::Debug for Standby {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Standby").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

impl Standby {
    pub(crate) fn new(env: Env, watch: Watch) -> Standby {
        Standby { env, watch }
    }

    /// The epoch of the writer that it stands by for.
    pub fn epoch(&self) -> Epoch {
        self.watch.epoch()
    }

    /// Ends once this process is the writer: after the one before fell silent, closed, or handed
    /// over with [`Db::hand_over`]. Everything that was acknowledged is there. Of several who stand
    /// by one takes over, and the others go on with it. Dropping the operation ends the watch.
    ///
    /// Costs four lists in the silence that a writer is allowed, a read and a list more to keep its
    /// state in memory, and a put and a delete every ten seconds.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Corrupt`, `Unsupported`, `Invalid`,
    /// `PermissionDenied` of opening. Passing trouble is waited out.
    pub fn take_over(self) -> Op<Db> {
        let Standby { env, watch } = self;
        Op::start_read(&env, "stand by", async move {
            Db::of_writer(watch.take_over().await?).hold_prepared().await?.follow_again().await
        })
    }
}
