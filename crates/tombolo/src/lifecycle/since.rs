//! Checkpoints after others: what came since.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::Result;

use crate::checkpoint::Checkpoint;
use crate::engine::Engine;
use crate::manifest::State;

/// A checkpoint, and what differs from the one before: see [`crate::Db::checkpoint_after`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointChange {
    /// The new one.
    pub checkpoint: Checkpoint,
    /// The one before.
    pub parent: Checkpoint,
    /// Tables, and objects with values, that are in the new one alone.
    pub came: u64,
    /// Their bytes: what was written for the checkpoint, and what compaction has merged since.
    pub came_bytes: u64,
    /// Those that are in both, and take no space twice.
    pub stayed: u64,
    /// Their bytes.
    pub stayed_bytes: u64,
    /// Those that are in the parent alone.
    pub left: u64,
    /// Their bytes, which deleting the parent gives back, unless another checkpoint, a backup or a
    /// clone keeps them.
    pub left_bytes: u64,
}

/// Makes a checkpoint after another one.
pub(crate) async fn checkpoint_after(
    engine: &Arc<Engine>,
    name: &str,
    parent: &str,
) -> Result<CheckpointChange> {
    let checkpoints = engine.checkpoints();
    let missing = |error: tombolo_storage::Error| {
        error.context(format!("checkpoint {name:?} was to come after it, and was not made"))
    };
    let before = checkpoints.find(parent).await.map_err(missing)?;
    // Before anything is made: it may be deleted at any time.
    let old = checkpoints.load(&before).await.map_err(missing)?;
    let checkpoint = super::checkpoint(engine, name).await?;
    let made = |error: tombolo_storage::Error| {
        error.context(format!("checkpoint {name:?} was made; looking at what came with it"))
    };
    let header = checkpoints.find(name).await.map_err(made)?;
    let new = checkpoints.load(&header).await.map_err(made)?;
    let (old, new) = (objects(&old), objects(&new));
    let sum = |tables: &mut dyn Iterator<Item = &&TableDescription>| {
        tables.fold((0, 0), |(count, bytes), table| (count + 1, bytes + table.length))
    };
    let (came, came_bytes) =
        sum(&mut new.iter().filter(|(name, _)| !old.contains_key(name)).map(|(_, table)| table));
    let (stayed, stayed_bytes) =
        sum(&mut new.iter().filter(|(name, _)| old.contains_key(name)).map(|(_, table)| table));
    let (left, left_bytes) =
        sum(&mut old.iter().filter(|(name, _)| !new.contains_key(name)).map(|(_, table)| table));
    let parent = Checkpoint::from(&before);
    Ok(CheckpointChange { checkpoint, parent, came, came_bytes, stayed, stayed_bytes, left, left_bytes })
}

fn objects(state: &State) -> BTreeMap<TableName, &TableDescription> {
    state.keyspaces().flat_map(|keyspace| keyspace.objects()).map(|table| (table.name, &**table)).collect()
}
