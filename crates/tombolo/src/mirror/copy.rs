//! Tables on their way from the source into the mirror: read in pieces within the rate, written
//! under a name of the mirror's, and read back.
//!
//! Invariant: [`Copier::copy`] gives a description of what was read back, every block of it against
//! its checksum and its identity. So neither damage of the source nor of the way gets into a
//! mirror.

use std::sync::Arc;

use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Result,
};

use super::plan;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::{Places, names};
use crate::pace::Paces;
use crate::table::{Table, ValueObject};
use crate::version::Tables;

/// Bytes of one request.
const PIECE_BYTES: u64 = 1 << 20;

/// See the module's documentation.
pub(super) struct Copier {
    /// The mirror's, whose names are taken.
    pub(super) tables: Tables,
    /// Where the source's tables lie.
    pub(super) places: Places,
    /// The number of the source's life.
    pub(super) database: u64,
    pub(super) pace: Arc<Paces>,
}

impl Copier {
    /// A copy of a table of the source, or of a value object.
    ///
    /// # Errors
    /// `NotFound` when the source's object is gone; `Corrupt`; those of both stores. The object of
    /// that name is then of no use, if there is one.
    pub(super) async fn copy(&self, table: &TableDescription, name: TableName) -> Result<TableDescription> {
        let (from, object) = self.places.locate(table);
        let copied = plan::copied(table, self.database, name);
        let to = names::table(self.tables.incarnation, name);
        self.bytes((&from, &object), &to, table).await?;
        if !is_enabled(Mutant::CopyUnread) {
            let read = self.read_back(&copied, &to).await;
            read.map_err(|error| error.context(format!("reading back the copy of {object}")))?;
        }
        Ok(copied)
    }

    async fn bytes(
        &self,
        (source, from): (&Arc<dyn ObjectStore>, &ObjectName),
        to: &ObjectName,
        table: &TableDescription,
    ) -> Result<()> {
        let env = &self.tables.env;
        let io = Io {
            env: env.clone(),
            store: Arc::clone(source),
            epoch: Epoch::NONE,
            purpose: Purpose::Compaction,
        };
        let mut placement = Placement::new(ObjectKind::Table, Life::Long);
        placement.level = table.level;
        let request = Request::new(Purpose::Compaction, self.tables.epoch);
        let mut writer = self.tables.objects.create(request, to, placement).await?;
        let (mut at, end) = (0, table.offset.saturating_add(table.length));
        while at < end {
            let range = at..end.min(at + PIECE_BYTES);
            let read = || source.read(io.request(), from, range.clone());
            let piece = io.retried(RetryLimit::Bounded, read).await?;
            if piece.is_empty() {
                return Err(Error::corrupt(from, at, format!("{end} bytes"), "the end of the object"));
            }
            at += piece.len() as u64;
            let bytes = piece.len() as u64;
            writer.append(piece).await?;
            self.pace.take(env, bytes).await;
        }
        writer.finish().await.map(drop)
    }

    async fn read_back(&self, copied: &TableDescription, object: &ObjectName) -> Result<()> {
        let Tables { objects, cache, epoch, .. } = &self.tables;
        let (store, cache) = (Arc::clone(objects), Arc::clone(cache));
        if copied.is_values() {
            let values = ValueObject::new(copied.clone(), object.clone(), store, cache, None, *epoch);
            return values.verify().await;
        }
        let table = Table::new(copied.clone(), object.clone(), store, cache);
        table.verify(Request::new(Purpose::Verify, *epoch)).await
    }
}
