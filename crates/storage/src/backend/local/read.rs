//! Reading objects, and the files kept open for it.
//!
//! Tables are read at random and often, and their names are never used again, so that an open file may stand for a name. Manifest
//! records, pins and everything else are opened by name for each read: who asks for those asks what the name holds now.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Access, File};

use super::LocalObjectStore;
use crate::{Error, ErrorKind, ObjectName, Purpose, Request, Result};

/// Files kept open at most. A file that another process deletes keeps its space while it is among them.
const HANDLES_MAX: usize = 256;

/// Ranges that lie this near to each other are read as one: a page read for nothing costs less than a system call.
const GAP_BYTES_MAX: u64 = 4096;

/// Most bytes read as one because they lie near.
const MERGED_BYTES_MAX: u64 = 1 << 20;

/// An open object. Its length never changes.
#[derive(Clone, Debug)]
struct Handle {
    file: Arc<dyn File>,
    length: u64,
}

/// Open files by name.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    by_name: BTreeMap<ObjectName, Handle>,
    /// The same names, oldest first.
    order: VecDeque<ObjectName>,
}

impl Handles {
    fn get(&self, name: &ObjectName) -> Option<Handle> {
        self.0.lock().by_name.get(name).cloned()
    }

    fn insert(&self, name: &ObjectName, handle: Handle) {
        let mut open = self.0.lock();
        if open.by_name.insert(name.clone(), handle).is_none() {
            open.order.push_back(name.clone());
        }
        if open.order.len() > HANDLES_MAX
            && let Some(oldest) = open.order.pop_front()
        {
            open.by_name.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().by_name.len()
    }

    pub(super) fn forget(&self, name: &ObjectName) {
        let mut open = self.0.lock();
        if open.by_name.remove(name).is_some() {
            open.order.retain(|open| open != name);
        }
    }
}

pub(super) fn not_found(path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "no such object").object(path.display())
}

/// An error of reading, in which every way of not being an object is `NotFound`.
pub(super) fn read_error(error: io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => not_found(path),
        _ => Error::io(error, "reading an object", path.display()),
    }
}

/// What one call of the file system reads: a span and the ranges that lie in it.
fn merge(ranges: &[Range<u64>]) -> Vec<(Range<u64>, Vec<usize>)> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&index| !ranges[index].is_empty()).collect();
    order.sort_unstable_by_key(|&index| ranges[index].start);
    let mut merged: Vec<(Range<u64>, Vec<usize>)> = Vec::new();
    for index in order {
        let range = &ranges[index];
        match merged.last_mut() {
            Some((span, members))
                if range.start <= span.end.saturating_add(GAP_BYTES_MAX)
                    && (range.end <= span.end || range.end - span.start <= MERGED_BYTES_MAX) =>
            {
                span.end = span.end.max(range.end);
                members.push(index);
            }
            _ => merged.push((range.clone(), vec![index])),
        }
    }
    merged
}

impl LocalObjectStore {
    fn open(&self, request: Request, name: &ObjectName) -> Result<Handle> {
        let keep = matches!(request.purpose, Purpose::Get | Purpose::Scan);
        if keep && let Some(handle) = self.shared.handles.get(name) {
            return Ok(handle);
        }
        let path = self.path(name)?;
        let opened = self.files().open(&path, Access::Read).and_then(|file| file.length().map(|length| (file, length)));
        let (file, length) = opened.map_err(|error| read_error(error, &path))?;
        let handle = Handle { file, length };
        if keep {
            self.shared.handles.insert(name, handle.clone());
        }
        Ok(handle)
    }

    fn read_span(&self, handle: &Handle, name: &ObjectName, span: &Range<u64>) -> Result<Bytes> {
        let span = span.start.min(handle.length)..span.end.min(handle.length);
        if span.is_empty() {
            return Ok(Bytes::new());
        }
        let fail = |error| read_error(error, &self.shared.root.join(name.as_str()));
        let length = usize::try_from(span.end - span.start)
            .map_err(|_| Error::new(ErrorKind::Invalid, "a range larger than memory").object(name).offset(span.start))?;
        let mut buffer = vec![0; length];
        tombolo_env::file::read_exact_at(&*handle.file, &mut buffer, span.start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::corrupt(
                self.shared.root.join(name.as_str()).display(),
                span.start,
                format!("{length} bytes of an object of {}", handle.length),
                "a file that was cut",
            ),
            _ => fail(error),
        })?;
        Ok(buffer.into())
    }

    pub(super) fn read_range(&self, request: Request, name: &ObjectName, range: Range<u64>) -> Result<Bytes> {
        let handle = self.open(request, name)?;
        self.read_span(&handle, name, &range)
    }

    pub(super) fn read_many(&self, request: Request, name: &ObjectName, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let handle = self.open(request, name)?;
        let cut: Vec<Range<u64>> = ranges.iter().map(|range| range.start.min(handle.length)..range.end.min(handle.length)).collect();
        let mut result = vec![Bytes::new(); ranges.len()];
        for (span, members) in merge(&cut) {
            let bytes = self.read_span(&handle, name, &span)?;
            for index in members {
                let within = |position: u64| usize::try_from(position - span.start).unwrap_or(bytes.len()).min(bytes.len());
                result[index] = bytes.slice(within(cut[index].start)..within(cut[index].end));
            }
        }
        Ok(result)
    }
}
