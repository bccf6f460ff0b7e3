//! Writing a memtable's tables: one for each keyspace that has writes and lives.
//!
//! Of many small tables it is the store that takes the time, and not the bytes: several are written
//! side by side then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Completion, Task, TaskClass, completion};
use tombolo_format::key::InternalKey;
use tombolo_format::manifest::{Edit, KeyspaceOptions as Settings, TableDescription};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use super::buried::Burying;
use super::world::{Bottom, FlushWorld};
use crate::engine::{Buried, Sealed};
use crate::filter::{Filtering, Offered};
use crate::manifest::State;
use crate::memtable::List;
use crate::options::KeyspaceOptions;
use crate::resolve::{Hiding, Retention, Taken};
use crate::version::{LeftBehind, Output, TableWriter, Written};

/// Small tables that a flush writes at once.
const SMALL_AT_ONCE: usize = 8;
/// What a table of a small one's memtable takes at most, on the average.
const SMALL_BYTES: u64 = 64 << 10;

/// The tables to write, and those written.
struct Writing {
    world: FlushWorld,
    waiting: Mutex<VecDeque<(u32, List, KeyspaceOptions)>>,
    tables: Mutex<Vec<TableDescription>>,
    buried: Mutex<Vec<Buried>>,
}

/// Writes the tables of a sealed memtable into `tables`: those that are complete, also when it
/// fails.
pub(super) async fn write_tables(
    world: FlushWorld,
    sealed: &Sealed,
    tables: &mut Vec<TableDescription>,
) -> Result<()> {
    let living = living(&world.state, sealed).into_iter();
    let waiting = living.map(|(id, list, options)| Ok((id, list, KeyspaceOptions::from_manifest(options)?)));
    let waiting = waiting.collect::<Result<VecDeque<_>>>()?;
    let small = sealed.memtable.used_bytes() / (waiting.len() as u64).max(1) <= SMALL_BYTES;
    let others = if small { waiting.len().clamp(1, SMALL_AT_ONCE) - 1 } else { 0 };
    let writing = Arc::new(Writing {
        world,
        waiting: Mutex::new(waiting),
        tables: Mutex::default(),
        buried: Mutex::default(),
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
    *sealed.buried.lock() = std::mem::take(&mut writing.buried.lock());
    result
}

/// The keyspaces that live after this flush and have not ended with an exchange, with what was
/// written and their options. One whose drop lies in a later memtable lives: that drop may yet be
/// lost.
pub(super) fn living<'a>(state: &'a State, sealed: &'a Sealed) -> Vec<(u32, List, &'a Settings)> {
    let mut changed = BTreeMap::new();
    for edit in &sealed.keyspace_edits {
        match edit {
            Edit::KeyspaceCreated { id, options, .. } => drop(changed.insert(*id, Some(options))),
            Edit::KeyspaceDropped { id } => drop(changed.insert(*id, None)),
            _ => {}
        }
    }
    let living = sealed.memtable.lists().into_iter().filter_map(|(id, list)| {
        let options = match changed.get(&id) {
            Some(options) => *options,
            None => state.keyspace(id).map(|keyspace| &*keyspace.options),
        };
        let has_ended = sealed.ingested.as_ref().is_some_and(|ingested| ingested.exchanges(id));
        Some((id, list, options.filter(|_| !has_ended)?))
    });
    living.collect()
}

impl Writing {
    fn spawn(self: &Arc<Writing>) -> (Task, Completion<Result<()>>) {
        let (ended, ending) = completion();
        let writing = Arc::clone(self);
        let work = async move { ended.complete(writing.run().await) };
        (self.world.outputs.tables().env.spawn(TaskClass::Flush, "flush of tables", work), ending)
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
        let world = &self.world;
        let output = Output {
            name: world.outputs.fresh_name(),
            keyspace,
            level: 0,
            lowest: false,
            oldest_unix_seconds: None,
            table_bytes: world.table_bytes,
            purpose: Purpose::Flush,
        };
        let mut writer = TableWriter::create(world.outputs.tables(), output, options).await?;
        let mut hiding = Hiding::new(world.moments.numbers());
        if let Some(ranges) = list.ranges() {
            ranges.iter().for_each(|range| hiding.add(range));
            writer.set_ranges(hiding.kept(None, None, |_, _| false))?;
        }
        let mut retention = Retention::new(world.moments.clone(), world.outputs.judge(keyspace));
        let mut filtering = world.begin_filtering(keyspace);
        let rules = (&mut hiding, &mut retention, &mut filtering);
        let bottom = world.bottom(keyspace, options.ingest_behind);
        let buried = write_list(world, (keyspace, list, bottom), &mut writer, rules).await?;
        self.buried.lock().extend(buried);
        if let Some(filtering) = filtering {
            world.outputs.filtered(keyspace, &filtering.finish());
        }
        world.outputs.misused(keyspace, retention.take_misused());
        if let Some(error) = retention.take_trouble() {
            world.outputs.merge_failed(keyspace, &error);
        }
        let Some(written) = finish(world.outputs.left_behind(), writer).await? else {
            return Ok(Vec::new());
        };
        world.moved(written.bytes).await;
        Ok(written.descriptions().collect())
    }
}

async fn write_list(
    world: &FlushWorld,
    (keyspace, list, mut bottom): (u32, &List, Bottom),
    writer: &mut TableWriter,
    (hiding, retention, filtering): (&mut Hiding, &mut Retention, &mut Option<Filtering>),
) -> Result<Vec<Buried>> {
    let mut burying = Burying::new(keyspace);
    let mut cursor = list.cursor();
    cursor.first();
    // Whether entries that are held begin with the newest of their key.
    let mut held_new = false;
    loop {
        let entry = cursor.entry();
        if entry.is_some_and(|entry| hiding.hides(entry.key, entry.trailer)) {
            cursor.next();
            continue;
        }
        if retention.holds() && entry.is_none_or(|entry| retention.is_due(entry.key, entry.trailer)) {
            let released = retention.release(entry.map(|entry| entry.key), |_| false);
            // A value under operands is not what the key has.
            let is_whole = held_new && released.len() == 1;
            for (trailer, value) in released {
                let key = InternalKey::new(retention.key(), trailer);
                match filtering.as_mut().filter(|_| is_whole) {
                    Some(filtering) => {
                        write_filtered(world, writer, (key, &value), filtering, &mut bottom).await?;
                    }
                    None => write_entry(world, writer, key, &value).await?,
                }
            }
            held_new = false;
        }
        let Some(entry) = entry else { return Ok(burying.end()) };
        let value = || Bytes::copy_from_slice(entry.value);
        let (is_new, was_held) = (retention.is_new(entry.key), retention.holds());
        let taken = retention.take(entry.key, entry.trailer, value, |key| bottom.is_at(key));
        match taken.map_err(|unresolved| unresolved.at("a memtable"))? {
            Taken::Kept => {
                let key = InternalKey::new(entry.key, entry.trailer);
                if is_new {
                    burying.meet(key);
                }
                match filtering.as_mut().filter(|_| is_new) {
                    Some(filtering) => {
                        write_filtered(world, writer, (key, entry.value), filtering, &mut bottom).await?;
                    }
                    None => write_entry(world, writer, key, entry.value).await?,
                }
            }
            Taken::Held if !was_held => {
                held_new = is_new;
                burying.stop_at(entry.key);
            }
            Taken::Held | Taken::Dropped => {}
        }
        cursor.next();
    }
}

/// Writes the newest entry of a key, or what its filter makes of it.
async fn write_filtered(
    world: &FlushWorld,
    writer: &mut TableWriter,
    (key, value): (InternalKey<'_>, &[u8]),
    filtering: &mut Filtering,
    bottom: &mut Bottom,
) -> Result<()> {
    match filtering.offer(key, value, None, |key| bottom.is_at(key)) {
        Offered::Kept | Offered::NeedsValue => write_entry(world, writer, key, value).await,
        Offered::Dropped => Ok(()),
        Offered::Changed(trailer, value) => {
            write_entry(world, writer, InternalKey::new(key.user_key, trailer), &value).await
        }
    }
}

#[inline]
async fn write_entry(
    world: &FlushWorld,
    writer: &mut TableWriter,
    key: InternalKey<'_>,
    value: &[u8],
) -> Result<()> {
    if writer.add_now(key, value)? {
        let bytes = writer.flush().await?;
        world.moved(bytes).await;
    }
    Ok(())
}

/// Completes a table and its value objects. One of unknown outcome is remembered: it may be there,
/// and is never named.
pub(crate) async fn finish(left_behind: &LeftBehind, writer: TableWriter) -> Result<Option<Written>> {
    let (name, is_cold) = (writer.name(), writer.is_cold());
    let finished = writer.finish().await;
    if matches!(&finished, Err(error) if error.kind() == ErrorKind::OutcomeUnknown) {
        if is_cold { left_behind.add_cold(name) } else { left_behind.add(name) }
    }
    finished
}
