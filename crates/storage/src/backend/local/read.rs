//! Reading objects.
//!
//! Tables are read through files kept open ([`crate::backend::handles`]). Manifest records, pins
//! and everything else are opened by name for each read: who asks for those asks what the name
//! holds now.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{Access, File};

use super::LocalObjectStore;
use crate::backend::within;
use crate::{Error, ErrorKind, ObjectName, Purpose, Request, Result};

/// Ranges that lie this near to each other are read as one: a page read for nothing costs less than
/// a system call.
const GAP_BYTES_MAX: u64 = 4096;

/// Most bytes read as one because they lie near.
const MERGED_BYTES_MAX: u64 = 1 << 20;

/// An open object. Its length never changes.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    file: Arc<dyn File>,
    length: u64,
}

pub(super) fn not_found(path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "no such object").object(path.display())
}

/// An error of reading, in which every way of not being an object is `NotFound`.
pub(super) fn read_error(error: io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            not_found(path)
        }
        _ => Error::io(error, "reading an object", path.display()),
    }
}

/// Whether the process, or the host, may not open another file (EMFILE, ENFILE, which have no kind
/// of their own).
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
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
        let passing = request.purpose == Purpose::Compaction;
        let kept = match request.purpose {
            Purpose::Get | Purpose::Scan => Some(&self.shared.handles),
            Purpose::Compaction => Some(&self.shared.passing),
            _ => None,
        };
        if let Some(handle) = kept.and_then(|kept| kept.get(name)) {
            return Ok(handle);
        }
        let path = self.path(name)?;
        let access =
            if kept.is_some() && self.shared.options.direct { Access::ReadDirect } else { Access::Read };
        let open =
            || self.files().open(&path, access).and_then(|file| file.length().map(|length| (file, length)));
        let opened = match open() {
            Err(error) if is_out_of_files(&error) => {
                // Files kept open only for speed give way.
                self.shared.handles.forget_all();
                self.shared.passing.forget_all();
                open()
            }
            opened => opened,
        };
        let (file, length) = opened.map_err(|error| read_error(error, &path))?;
        let handle = Handle { file, length };
        if passing || request.purpose == Purpose::Verify {
            handle.file.read_once();
        }
        if let Some(kept) = kept {
            kept.insert(name, handle.clone());
        }
        Ok(handle)
    }

    /// Reads spans of an open object, all at once; each lies within its length.
    async fn fetch(
        &self,
        request: Request,
        handle: &Handle,
        name: &ObjectName,
        spans: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let mut ranges = Vec::with_capacity(spans.len());
        for span in spans {
            let length = usize::try_from(span.end - span.start).map_err(|_| {
                Error::new(ErrorKind::Invalid, "a range larger than memory").object(name).offset(span.start)
            })?;
            ranges.push((span.start, length));
        }
        let path = || self.shared.root.join(name.as_str());
        let reading = Arc::clone(&handle.file).read_many(ranges.clone());
        let results = within(&self.shared.env, request, "an object was read", reading).await?;
        let check = |((start, length), result): ((u64, usize), io::Result<Vec<u8>>)| {
            let bytes = result.map_err(|error| read_error(error, &path()))?;
            if bytes.len() == length {
                return Ok(bytes.into());
            }
            let expected = format!("{length} bytes of an object of {}", handle.length);
            Err(Error::corrupt(path().display(), start, expected, "a file that was cut"))
        };
        ranges.into_iter().zip(results).map(check).collect()
    }

    pub(super) async fn read_range(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let handle = self.open(request, name)?;
        let span = range.start.min(handle.length)..range.end.min(handle.length);
        if span.is_empty() {
            return Ok(Bytes::new());
        }
        let mut read = self.fetch(request, &handle, name, &[span]).await?;
        Ok(read.pop().unwrap_or_default())
    }

    /// Shows what the page cache has of a range, if it has all of it. The file must be open
    /// already: opening one may wait.
    pub(super) fn show_held(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
        show: &mut dyn FnMut(&[u8]),
    ) -> bool {
        if self.shared.options.direct || !matches!(request.purpose, Purpose::Get | Purpose::Scan) {
            return false;
        }
        let Some(handle) = self.shared.handles.get(name) else { return false };
        let span = range.start.min(handle.length)..range.end.min(handle.length);
        let length = span.end.checked_sub(span.start).and_then(|length| usize::try_from(length).ok());
        length.is_some_and(|length| handle.file.with_held(span.start, length, show))
    }

    pub(super) async fn read_many(
        &self,
        request: Request,
        name: &ObjectName,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let handle = self.open(request, name)?;
        let cut: Vec<Range<u64>> =
            ranges.iter().map(|range| range.start.min(handle.length)..range.end.min(handle.length)).collect();
        let merged = merge(&cut);
        let spans: Vec<Range<u64>> = merged.iter().map(|(span, _)| span.clone()).collect();
        let read = self.fetch(request, &handle, name, &spans).await?;
        let mut result = vec![Bytes::new(); ranges.len()];
        for ((span, members), bytes) in merged.into_iter().zip(read) {
            for index in members {
                let within = |position: u64| {
                    usize::try_from(position - span.start).unwrap_or(bytes.len()).min(bytes.len())
                };
                result[index] = bytes.slice(within(cut[index].start)..within(cut[index].end));
            }
        }
        Ok(result)
    }
}
