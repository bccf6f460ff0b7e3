//! Several sorted sources as one, forward and backward.
//!
//! Sources are few (memtables, runs, one for each sorted level), so that the smallest is found by looking at all.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::Trailer;
use tombolo_storage::{Purpose, Result};

use crate::engine::View;
use crate::memtable::MemtableCursor;
use crate::version::{SortedRun, TableCursor};

/// One sorted source.
#[derive(Debug)]
pub(crate) enum Source {
    /// Writes to a keyspace in a memtable.
    Memtable(MemtableCursor),
    /// A run of level 0.
    Table(TableCursor),
    /// A sorted run of several tables.
    Run(RunCursor),
}

/// Walks tables that follow each other without overlap.
#[derive(Debug)]
pub(crate) struct RunCursor {
    tables: Arc<SortedRun>,
    purpose: Purpose,
    at: usize,
    /// Invariant: a cursor of `tables[at]`.
    cursor: Option<TableCursor>,
}

impl RunCursor {
    pub(crate) fn new(tables: &Arc<SortedRun>, purpose: Purpose) -> RunCursor {
        RunCursor { tables: Arc::clone(tables), purpose, at: 0, cursor: None }
    }

    /// A cursor of table `at`, or nowhere when there is none.
    fn open(&mut self, at: usize) -> Option<&mut TableCursor> {
        if self.at != at || self.cursor.is_none() {
            self.at = at;
            self.cursor = self.tables.get(at).map(|table| table.cursor(self.purpose));
        }
        self.cursor.as_mut()
    }

    async fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let at = self.tables.before(key);
        if let Some(cursor) = self.open(at) {
            cursor.seek(key, trailer).await?;
        }
        self.skip_ends_forward().await
    }

    async fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let after = self.tables.begun(key);
        match after.checked_sub(1) {
            Some(at) => {
                if let Some(cursor) = self.open(at) {
                    cursor.seek_before(key, trailer).await?;
                }
                self.skip_ends_backward().await
            }
            None => {
                self.cursor = None;
                Ok(())
            }
        }
    }

    async fn first(&mut self) -> Result<()> {
        if let Some(cursor) = self.open(0) {
            cursor.first().await?;
        }
        self.skip_ends_forward().await
    }

    async fn last(&mut self) -> Result<()> {
        let Some(at) = self.tables.len().checked_sub(1) else { return Ok(()) };
        if let Some(cursor) = self.open(at) {
            cursor.last().await?;
        }
        self.skip_ends_backward().await
    }

    async fn skip_ends_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| cursor.entry().is_none()) {
            if let Some(cursor) = self.open(self.at + 1) {
                cursor.first().await?;
            }
        }
        Ok(())
    }

    async fn skip_ends_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| cursor.entry().is_none()) {
            match self.at.checked_sub(1) {
                Some(at) => {
                    if let Some(cursor) = self.open(at) {
                        cursor.last().await?;
                    }
                }
                None => self.cursor = None,
            }
        }
        Ok(())
    }
}

impl Source {
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        match self {
            Source::Memtable(cursor) => cursor.entry().map(|entry| (entry.key, entry.trailer)),
            Source::Table(cursor) => cursor.entry(),
            Source::Run(cursor) => cursor.cursor.as_ref().and_then(TableCursor::entry),
        }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Memtable(cursor) => cursor.entry().map_or(&[], |entry| entry.value),
            Source::Table(cursor) => cursor.value(),
            Source::Run(cursor) => cursor.cursor.as_ref().map_or(&[], TableCursor::value),
        }
    }

    /// The value, sharing the block it lies in; copied out of memtables.
    pub(crate) fn value_bytes(&self) -> Bytes {
        match self {
            Source::Memtable(cursor) => cursor.entry().map_or_else(Bytes::new, |entry| Bytes::copy_from_slice(entry.value)),
            Source::Table(cursor) => cursor.value_bytes(),
            Source::Run(cursor) => cursor.cursor.as_ref().map_or_else(Bytes::new, TableCursor::value_bytes),
        }
    }

    async fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek(key, trailer);
                Ok(())
            }
            Source::Table(cursor) => cursor.seek(key, trailer).await,
            Source::Run(cursor) => cursor.seek(key, trailer).await,
        }
    }

    async fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek_before(key, trailer);
                Ok(())
            }
            Source::Table(cursor) => cursor.seek_before(key, trailer).await,
            Source::Run(cursor) => cursor.seek_before(key, trailer).await,
        }
    }

    async fn first(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.first();
                Ok(())
            }
            Source::Table(cursor) => cursor.first().await,
            Source::Run(cursor) => cursor.first().await,
        }
    }

    async fn last(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.last();
                Ok(())
            }
            Source::Table(cursor) => cursor.last().await,
            Source::Run(cursor) => cursor.last().await,
        }
    }

    #[inline]
    async fn next(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.next();
                Ok(())
            }
            Source::Table(cursor) => cursor.next().await,
            Source::Run(cursor) => {
                if let Some(cursor) = &mut cursor.cursor {
                    cursor.next().await?;
                }
                cursor.skip_ends_forward().await
            }
        }
    }

    async fn prev(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.prev();
                Ok(())
            }
            Source::Table(cursor) => cursor.prev().await,
            Source::Run(cursor) => {
                if let Some(cursor) = &mut cursor.cursor {
                    cursor.prev().await?;
                }
                cursor.skip_ends_backward().await
            }
        }
    }
}

/// All versions of all keys of several sources, in the order of internal keys.
///
/// Invariant: `current` is the source that stands first in the direction of the last move, or none when all have ended.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    current: Option<usize>,
}

impl Merge {
    /// Of `sources`, standing nowhere.
    pub(crate) fn new(sources: Vec<Source>) -> Merge {
        Merge { sources, current: None }
    }

    /// Of all that a view holds of a keyspace.
    pub(crate) fn of_view(view: &View, keyspace: u32, purpose: Purpose) -> Merge {
        let memtables = std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
        let mut sources: Vec<_> =
            memtables.filter_map(|memtable| memtable.list(keyspace)).map(|list| Source::Memtable(list.cursor())).collect();
        if let Some(levels) = view.version.levels(keyspace) {
            sources.extend(levels.runs.iter().map(|table| Source::Table(table.cursor(purpose))));
            sources.extend(levels.sorted.iter().map(|(_, run)| Source::Run(RunCursor::new(run, purpose))));
        }
        Merge::new(sources)
    }

    /// The entry at which it stands.
    #[inline]
    pub(crate) fn source(&self) -> Option<&Source> {
        self.current.map(|index| &self.sources[index])
    }

    /// The key at which it stands.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        self.source().and_then(Source::entry)
    }

    fn choose(&mut self, wanted: Ordering) {
        let mut best: Option<(usize, (&[u8], Trailer))> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(entry) = source.entry() else { continue };
            let better = best.is_none_or(|(_, found)| entry.0.cmp(found.0).then_with(|| found.1.cmp(&entry.1)) == wanted);
            if better {
                best = Some((index, entry));
            }
        }
        self.current = best.map(|(index, _)| index);
    }

    /// To the first entry at or after (`key`, `trailer`); goes forward from there.
    pub(crate) async fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        for source in &mut self.sources {
            source.seek(key, trailer).await?;
        }
        self.choose(Ordering::Less);
        Ok(())
    }

    /// To the first entry; goes forward from there.
    pub(crate) async fn first(&mut self) -> Result<()> {
        for source in &mut self.sources {
            source.first().await?;
        }
        self.choose(Ordering::Less);
        Ok(())
    }

    /// To the last entry before (`key`, `trailer`); goes backward from there.
    pub(crate) async fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        for source in &mut self.sources {
            source.seek_before(key, trailer).await?;
        }
        self.choose(Ordering::Greater);
        Ok(())
    }

    /// To the last entry; goes backward from there.
    pub(crate) async fn last(&mut self) -> Result<()> {
        for source in &mut self.sources {
            source.last().await?;
        }
        self.choose(Ordering::Greater);
        Ok(())
    }

    /// Nowhere: as at the end.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }

    /// One on; only while going forward.
    #[inline]
    pub(crate) async fn next(&mut self) -> Result<()> {
        if let Some(index) = self.current {
            self.sources[index].next().await?;
            self.choose(Ordering::Less);
        }
        Ok(())
    }

    /// One back; only while going backward.
    pub(crate) async fn prev(&mut self) -> Result<()> {
        if let Some(index) = self.current {
            self.sources[index].prev().await?;
            self.choose(Ordering::Greater);
        }
        Ok(())
    }
}
