//! A get that says on its way which sources it asks, and why.
//!
//! It goes through the same sources in the same order as a get: memtables, newest first; the runs
//! of level 0, newest first; of each deeper level the one table that may hold the key. It ends
//! where a get ends.

use tombolo_format::key::{InternalKey, SequenceNumber, Trailer, kind_name};
use tombolo_storage::Result;

use super::hides::{Cover, cover_of, open_for_ranges};
use super::{Asked, MEMTABLE, candidates};
use crate::engine::View;
use crate::resolve::{Says, says};
use crate::table::{Lookup, Met, Piece};

/// A version that a get found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetVersion {
    /// The number of its write.
    pub sequence: u64,
    /// What the entry is, as errors and `inspect` name it.
    pub kind: String,
    /// Bytes that are stored as its value.
    pub value_bytes: u64,
    /// Whether a range delete of the same source hides it.
    pub is_hidden: bool,
}

/// A source that a get asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetStep {
    /// Which: a memtable, or the object of a table.
    pub source: String,
    /// The table's level; `None` of a memtable.
    pub level: Option<u8>,
    /// Whether the table had to be opened first: one request.
    pub opened: bool,
    /// What the table's filter and index lay in.
    pub index: Option<Piece>,
    /// Whether the table's filter let the key pass; `None`: it was not asked.
    pub filter: Option<bool>,
    /// Whether the row was kept by itself, so that no block was needed.
    pub row: bool,
    /// The data block that was searched.
    pub block: Option<Piece>,
    /// The number of a range delete over the key.
    pub range_delete: Option<u64>,
    /// Versions of the key, newest first: one, or operands down to what they are merged into.
    pub versions: Vec<GetVersion>,
    /// Whether the get needed nothing older.
    pub is_last: bool,
}

/// Sources that were there and were not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotAsked {
    /// Tables whose keys do not reach to the key.
    pub elsewhere: u64,
    /// Tables that may hold the key, below where the answer was.
    pub below: u64,
}

/// What one source says of a key: its versions, and whether that is enough.
struct Versions<'a> {
    lookup: Lookup<'a>,
    cover: Cover,
    step: GetStep,
}

impl<'a> Versions<'a> {
    fn new(lookup: &Lookup<'a>, cover: Cover, source: String) -> Versions<'a> {
        let range_delete = cover.0.map(|number| number.0);
        Versions { lookup: *lookup, cover, step: GetStep { source, range_delete, ..GetStep::default() } }
    }

    /// Takes a version; says whether the next older one is needed.
    fn take(&mut self, trailer: Trailer, value_bytes: usize) -> Result<bool> {
        let is_hidden = self.cover.hides(trailer);
        self.step.versions.push(GetVersion {
            sequence: trailer.sequence().0,
            kind: kind_name(trailer.kind_byte()),
            value_bytes: value_bytes as u64,
            is_hidden,
        });
        let is_operand = matches!(says(trailer).map_err(|error| error.at(&self.step.source))?, Says::Operand);
        let older = trailer.sequence().0.checked_sub(1);
        match older.filter(|_| is_operand && !is_hidden) {
            Some(older) => {
                let trailer = Trailer::seek(SequenceNumber(older));
                self.lookup.target = InternalKey::new(self.lookup.target.user_key, trailer);
                Ok(true)
            }
            None => {
                self.step.is_last = true;
                Ok(false)
            }
        }
    }

    fn finish(mut self) -> GetStep {
        // Below a range delete there is nothing.
        self.step.is_last |= self.cover.is_there();
        self.step
    }
}

/// The sources that a get of `key` asks.
///
/// # Errors
/// Those of a get.
pub(crate) async fn explain(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<(Vec<GetStep>, NotAsked)> {
    let lookup = Lookup::new(key, asked.sequence);
    let mut steps = Vec::new();
    let mut not_asked = NotAsked::default();
    let mut is_done = false;
    for (age, memtable) in view.memtables().enumerate() {
        let cover = Cover(memtable.covering(asked.keyspace.id, key, asked.sequence));
        let source =
            if age == 0 { MEMTABLE.to_owned() } else { format!("{MEMTABLE} that waits for its flush") };
        let mut versions = Versions::new(&lookup, cover, source);
        let below = versions.lookup.target.trailer.sequence();
        memtable.versions(asked.keyspace.id, key, lookup.hash, below, |entry| {
            Ok::<_, tombolo_storage::Error>(!versions.take(entry.trailer, entry.value.len())?)
        })?;
        let step = versions.finish();
        is_done = step.is_last;
        steps.push(step);
        if is_done {
            break;
        }
    }
    let Some(levels) = view.version.levels(asked.keyspace.id) else { return Ok((steps, not_asked)) };
    let mut reached = 0;
    for table in candidates(levels, key) {
        reached += 1;
        if is_done {
            not_asked.below += 1;
            continue;
        }
        open_for_ranges(table).await?;
        let cover = cover_of(table, key, asked.sequence).unwrap_or(Cover(None));
        let mut versions = Versions::new(&lookup, cover, table.object().to_string());
        versions.step.level = Some(table.description().level);
        loop {
            let Met { opened, index, filter, row, block, found } = table.explain(&versions.lookup).await?;
            let step = &mut versions.step;
            step.opened |= opened;
            (step.index, step.filter, step.row) =
                (step.index.or(index), step.filter.or(filter), step.row || row);
            step.block = step.block.or(block);
            let Some(hit) = found else { break };
            if !versions.take(hit.trailer, hit.value().len())? {
                break;
            }
        }
        let step = versions.finish();
        is_done = step.is_last;
        steps.push(step);
    }
    not_asked.elsewhere = levels.tables().count() as u64 - reached;
    Ok((steps, not_asked))
}
