//! Deletes of ranges that drop whole tables.

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::db::{BlockingKeyspace, Keyspace};
use crate::engine::{CompactionRequest, DroppedRange};
use crate::op::Op;
use crate::{lifecycle, write};

impl Keyspace {
    /// Removes all keys from `from` on and before `to`, as [`Keyspace::delete_range`] does, and
    /// then gives back the space of the tables that hold nothing else, at once and without reading
    /// them. For old data that is far more than its keys are worth reading.
    ///
    /// No key of the range has a value when this ends, nor comes back, whatever tables it lay in:
    /// those that reach beyond the range stay until compaction, as do those that a snapshot sees.
    /// Writes that come after the range delete are kept. One log append, a flush, and a manifest
    /// record for each level.
    ///
    /// ```no_run
    /// # fn f(events: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// events.delete_files_in_range("2025-", "2026-").wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`]; those of [`crate::Db::flush`].
    pub fn delete_files_in_range(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Op<()> {
        let engine = std::sync::Arc::clone(&self.handle().engine);
        let range = (Bytes::copy_from_slice(from.as_ref()), Bytes::copy_from_slice(to.as_ref()));
        let (id, env) = (self.id(), engine.env.clone());
        // All that it holds is older than the range delete.
        let after = engine.stream.visible();
        let deleted = if is_enabled(Mutant::DroppedFilesUncovered) {
            Op::ready(Ok(()))
        } else {
            self.delete_range(&range.0, &range.1)
        };
        Op::limited(self.limit(), &env, "delete of files", || {
            Op::start(&env, TaskClass::Foreground, "delete of files", async move {
                deleted.await?;
                let by = write::seal(&engine);
                lifecycle::flushed(&engine, by).await?;
                let request = CompactionRequest::dropping(id, range, DroppedRange { after, by });
                lifecycle::compacted(&engine, vec![request]).await
            })
        })
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    /// As [`Keyspace::delete_files_in_range`].
    pub fn delete_files_in_range(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.keyspace().delete_files_in_range(from, to).wait()
    }
}
