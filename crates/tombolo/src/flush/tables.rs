//! Writing a memtable's tables: one for each keyspace that has writes and lives.
//!
//! Of many small tables it is the store that takes the time, and not the bytes: several are written
//! side by side then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completion, Task, TaskClass, completion};
use tombolo_format::key::InternalKey;
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use crate::engine::{Engine, Sealed};
use crate::memtable::List;
use crate::options::KeyspaceOptions;
use crate::resolve::Retention;
use crate::version::{LeftBehind, Output, TableWriter, Written};

/// Small tables that a flush writes at once.
const SMALL_AT_ONCE: usize = 8;
/// What a table of a small one's memtable takes at most, on the average.
const SMALL_BYTES: u64 = 64 << 10;

/// The tables to write, and those written.
struct Writing {
    engine: Arc<Engine>,
    waiting: Mutex<VecDeque<(u32, List, KeyspaceOptions)>>,
    tables: Mutex<Vec<TableDescription>>,
    /// Of the database, before it.
    table_bytes: u64,
}

/// Writes the tables of a sealed memtable into `tables`: those that are complete, also when it
/// fails.
pub(super) async fn write_tables(
    engine: &Arc<Engine>,
    sealed: &Sealed,
    tables: &mut Vec<TableDescription>,
) -> Result<()> {
    let waiting = living(engine, sealed)?;
    let small = sealed.memtable.used_bytes() / (waiting.len() as u64).max(1) <= SMALL_BYTES;
    let others = if small { waiting.len().clamp(1, SMALL_AT_ONCE) - 1 } else { 0 };
    let table_bytes = engine.table_bytes();
    let writing = Arc::new(Writing {
        engine: Arc::clone(engine),
        waiting: Mutex::new(waiting),
        tables: Mutex::default(),
        table_bytes,
    });
    let others: Vec<_> = (0..others).map(|_| writing.spawn()).collect();
    let mut result = writing.run().await;
    for (task, ended) in others {
        let ended =
            ended.await.unwrap_or_else(|| Err(Error::new(ErrorKind::Bug, "a part of a flush panicked")));
        drop(task);
        result = result.and(ended);
    }
    tables.append(&mut writing.tables.lock());
    tables.sort_by_key(|table| table.keyspace);
    result
}

/// The keyspaces that live after this flush, with their options. One whose drop lies in a later
/// memtable lives: that drop may yet be lost.
fn living(engine: &Engine, sealed: &Sealed) -> Result<VecDeque<(u32, List, KeyspaceOptions)>> {
    let mut changed = BTreeMap::new();
    for edit in &sealed.keyspace_edits {
        match edit {
            Edit::KeyspaceCreated { id, options, .. } => drop(changed.insert(*id, Some(options))),
            Edit::KeyspaceDropped { id } => drop(changed.insert(*id, None)),
            _ => {}
        }
    }
    let state = engine.manifest.state();
    let mut living = VecDeque::new();
    for (id, list) in sealed.memtable.lists() {
        let options = match changed.get(&id) {
            Some(options) => *options,
            None => state.keyspace(id).map(|keyspace| &*keyspace.options),
        };
        if let Some(options) = options {
            living.push_back((id, list, KeyspaceOptions::from_manifest(options)?));
        }
    }
    Ok(living)
}

impl Writing {
    fn spawn(self: &Arc<Writing>) -> (Task, Completion<Result<()>>) {
        let (ended, ending) = completion();
        let writing = Arc::clone(self);
        let work = async move { ended.complete(writing.run().await) };
        (self.engine.env.spawn(TaskClass::Flush, "flush of tables", work), ending)
    }

    /// Writes one after another, until none waits.
    async fn run(&self) -> Result<()> {
        loop {
            let next = self.waiting.lock().pop_front();
            let Some((keyspace, list, options)) = next else { return Ok(()) };
            match self.write(keyspace, &list, &options).await {
                Ok(tables) => self.tables.lock().extend(tables),
                Err(error) => {
                    self.waiting.lock().clear();
                    return Err(error);
                }
            }
        }
    }

    async fn write(
        &self,
        keyspace: u32,
        list: &List,
        options: &KeyspaceOptions,
    ) -> Result<Vec<TableDescription>> {
        let engine = &self.engine;
        let name = engine.manifest.fresh_table_name();
        let output = Output {
            name,
            keyspace,
            level: 0,
            lowest: false,
            oldest_unix_seconds: None,
            table_bytes: self.table_bytes,
            purpose: Purpose::Flush,
        };
        let mut writer = TableWriter::create(engine.versions.tables(), output, options).await?;
        write_list(engine, list, &mut writer).await?;
        let Some(written) = finish(&engine.left_behind, writer).await? else { return Ok(Vec::new()) };
        engine.pace.take(&engine.env, written.bytes).await;
        Ok(written.descriptions().collect())
    }
}

async fn write_list(engine: &Engine, list: &List, writer: &mut TableWriter) -> Result<()> {
    let mut retention = Retention::new(engine.snapshots.list());
    let mut cursor = list.cursor();
    cursor.first();
    while let Some(entry) = cursor.entry() {
        let kept = retention.keeps(entry.key, entry.trailer, |_| false);
        if kept.map_err(|unresolved| unresolved.at("a memtable"))?
            && writer.add_now(InternalKey::new(entry.key, entry.trailer), entry.value)?
        {
            let bytes = writer.flush().await?;
            engine.pace.take(&engine.env, bytes).await;
        }
        cursor.next();
    }
    Ok(())
}

/// Completes a table and its value objects. One of unknown outcome is remembered: it may be there,
/// and is never named.
pub(crate) async fn finish(left_behind: &LeftBehind, writer: TableWriter) -> Result<Option<Written>> {
    let name = writer.name();
    let finished = writer.finish().await;
    if matches!(&finished, Err(error) if error.kind() == ErrorKind::OutcomeUnknown) {
        left_behind.add(name);
    }
    finished
}
