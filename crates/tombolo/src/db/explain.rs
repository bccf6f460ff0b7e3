//! What a get asks: which memtables, filters, tables and blocks, and why.

use std::sync::Arc;

use bytes::Bytes;

use crate::db::{Keyspace, Snapshot};
use crate::engine::Kept;
use crate::op::Op;
use crate::read::{self, Asked, Judged};
pub use crate::read::{GetStep, GetVersion, NotAsked};
pub use crate::table::{Piece as GetPiece, Whence as GetWhence};

/// What a get asked, and what came of it: [`Keyspace::explain_get`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetExplanation {
    /// Up to which write the get saw.
    pub sequence: u64,
    /// The sources that it asked, in order.
    pub steps: Vec<GetStep>,
    /// Those that it did not.
    pub not_asked: NotAsked,
    /// Bytes of the value; `None`: the key has none.
    pub value_bytes: Option<u64>,
    /// Time that it took, in nanoseconds; a get takes less, as it says nothing.
    pub nanos: u64,
}

impl Keyspace {
    /// Does a get, and says what it asked: each memtable, and each table with its filter, its index
    /// and its block, and where those lay. What it has read is in the caches afterwards, as after a
    /// get. For finding out why a get is slow.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let db = tombolo::Db::builder("mem://orders").open().wait()?;
    /// let orders = db.default_keyspace();
    /// orders.put("1", "two books").wait()?;
    /// let explained = orders.explain_get("1").wait()?;
    /// assert_eq!(explained.steps[0].versions.len(), 1);
    /// assert_eq!(explained.value_bytes, Some(9));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn explain_get(&self, key: impl AsRef<[u8]>) -> Op<GetExplanation> {
        let (keyspace, key) = (self.clone(), Bytes::copy_from_slice(key.as_ref()));
        let engine = Arc::clone(&self.handle().engine);
        let env = engine.env.clone();
        Op::limited(self.limit(), &env.clone(), "explanation of a get", || {
            Op::start_read(&env, "explanation of a get", async move {
                let began = engine.env.now();
                let snapshot = Snapshot::new(Arc::clone(keyspace.handle()));
                let view =
                    Kept::new(&engine, snapshot.view().cloned().unwrap_or_else(|| engine.view_owned()));
                read::check(&engine, keyspace.info())?;
                let judged = Judged::At(snapshot.judged_ms());
                let asked = Asked { keyspace: keyspace.info(), sequence: snapshot.number(), judged };
                let (steps, not_asked) = read::explain(&view, asked, &key).await?;
                let value = snapshot.get(&keyspace, &key).await?;
                let nanos = u64::try_from(engine.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
                Ok(GetExplanation {
                    sequence: snapshot.sequence(),
                    steps,
                    not_asked,
                    value_bytes: value.map(|value| value.len() as u64),
                    nanos,
                })
            })
        })
    }
}
