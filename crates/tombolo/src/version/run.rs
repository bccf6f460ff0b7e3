//! A sorted run: tables that follow each other by key without overlap.
//!
//! Runs share what did not change: a run is made from the chunks of the manifest's level, and a
//! chunk that the level kept keeps its handles. An edit so costs a new version the chunks that it
//! touched, at 100 tables as at 100,000.
//!
//! Invariant: chunks are not empty; tables ascend by key within and across chunks, and no key range
//! meets another.

use std::ops::Index;
use std::sync::Arc;

use tombolo_format::key::head_of;

use super::TableHandle;
use crate::manifest::LevelChunk;

/// The tables of one chunk of a level.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The manifest's chunk that it was made of. Held, so that its address tells it from others.
    source: LevelChunk,
    /// First eight bytes of each last key, as a number: a search touches few tables.
    last_prefixes: Box<[u64]>,
    tables: Box<[Arc<TableHandle>]>,
    bytes: u64,
    entries: u64,
    has_ranges: bool,
}

impl Chunk {
    pub(super) fn new(source: &LevelChunk, tables: Box<[Arc<TableHandle>]>) -> Chunk {
        let last_prefixes = tables.iter().map(|table| head_of(&table.description().last_key)).collect();
        let bytes = tables.iter().map(|table| table.description().length).sum();
        let entries = tables.iter().map(|table| table.description().entries).sum();
        let has_ranges = tables.iter().any(|table| table.has_ranges());
        Chunk { source: Arc::clone(source), last_prefixes, tables, bytes, entries, has_ranges }
    }

    /// Tables whose last key lies before `key`.
    #[inline]
    fn before(&self, key: &[u8], wanted: u64) -> usize {
        let from = self.last_prefixes.partition_point(|prefix| *prefix < wanted);
        let equal = self.last_prefixes[from..].partition_point(|prefix| *prefix == wanted);
        from + self.tables[from..from + equal].partition_point(|table| table.description().ends_before(key))
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.tables.last().is_none_or(|table| table.description().ends_before(key))
    }

    fn first_key(&self) -> &[u8] {
        self.tables.first().map_or(&[], |table| &table.description().first_key)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct SortedRun {
    chunks: Vec<Arc<Chunk>>,
    /// Tables before each chunk.
    starts: Vec<usize>,
    length: usize,
    bytes: u64,
    entries: u64,
    has_ranges: bool,
}

impl SortedRun {
    pub(super) fn new(chunks: Vec<Arc<Chunk>>) -> SortedRun {
        let mut run = SortedRun { starts: Vec::with_capacity(chunks.len()), ..SortedRun::default() };
        for chunk in &chunks {
            run.starts.push(run.length);
            run.length += chunk.tables.len();
            run.bytes += chunk.bytes;
            run.entries += chunk.entries;
            run.has_ranges |= chunk.has_ranges;
        }
        run.chunks = chunks;
        run
    }

    /// The chunk made of `source`, if this run has it. Levels change little: it is looked for where
    /// it was, and then everywhere.
    pub(super) fn chunk_of(&self, source: &LevelChunk, near: usize) -> Option<&Arc<Chunk>> {
        let is = |chunk: &&Arc<Chunk>| Arc::ptr_eq(&chunk.source, source);
        let around = near.saturating_sub(2)..(near + 3).min(self.chunks.len());
        let close = self.chunks.get(around).and_then(|chunks| chunks.iter().find(is));
        close.or_else(|| self.chunks.iter().find(is))
    }

    /// Number of tables.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Bytes of all tables.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether some table holds range deletes.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// Entries of all tables.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Table `at` in order.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Arc<TableHandle>> {
        if let [chunk] = &self.chunks[..] {
            return chunk.tables.get(at);
        }
        let chunk = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        self.chunks[chunk].tables.get(at - self.starts[chunk])
    }

    /// Tables that end before `key`: the next one is the first that may hold `key` or what follows
    /// it.
    #[inline]
    pub(crate) fn before(&self, key: &[u8]) -> usize {
        let chunk = match self.chunks.len() {
            0 => return 0,
            1 => 0,
            _ => self.chunks.partition_point(|chunk| chunk.ends_before(key)),
        };
        match self.chunks.get(chunk) {
            Some(found) => self.starts[chunk] + found.before(key, head_of(key)),
            None => self.length,
        }
    }

    /// Tables that begin at or before `key`.
    pub(crate) fn begun(&self, key: &[u8]) -> usize {
        match self.chunks.partition_point(|chunk| chunk.first_key() <= key).checked_sub(1) {
            None => 0,
            Some(chunk) => {
                let tables = &self.chunks[chunk].tables;
                self.starts[chunk] + tables.partition_point(|table| &table.description().first_key[..] <= key)
            }
        }
    }

    /// The table whose range holds `key`, if there is one.
    #[inline]
    pub(crate) fn table_for(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        self.get(self.before(key)).filter(|table| &table.description().first_key[..] <= key)
    }

    /// The tables whose ranges meet `first..=last`, as places.
    pub(crate) fn overlapping(&self, first: &[u8], last: &[u8]) -> std::ops::Range<usize> {
        let from = self.before(first);
        from..self.begun(last).max(from)
    }

    /// All tables in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<TableHandle>> {
        self.chunks.iter().flat_map(|chunk| chunk.tables.iter())
    }

    /// The tables at `range`, in order. Costs as much as it yields.
    pub(crate) fn range(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = &Arc<TableHandle>> {
        range.map_while(|at| self.get(at))
    }
}

impl Index<usize> for SortedRun {
    type Output = Arc<TableHandle>;

    fn index(&self, at: usize) -> &Arc<TableHandle> {
        match self.get(at) {
            Some(table) => table,
            None => panic!("table {at} of a run of {}", self.length),
        }
    }
}
