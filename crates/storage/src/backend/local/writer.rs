//! Objects that come in pieces.
//!
//! Through the page cache, an object's dirty pages are bounded: after each megabyte its writing
//! back begins, and the megabytes before it are waited for. What the sync at the end has left to do
//! is then small, and a log on the same device does not wait behind a whole table in its queue.
//! Past the page cache (`io=direct`), whole buffers are written, in space taken ahead, and the last
//! one is padded and cut.
//!
//! Invariant: after a failed write, or a failed writing out, the object is never finished: what the
//! file holds is not known.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use tombolo_env::{BoxFuture, Env};

use super::LocalObjectStore;
use super::temporary::Temporary;
use crate::backend::begin;
use crate::{
    Error, ErrorKind, ObjectInfo, ObjectKind, ObjectName, ObjectWriter, Placement, PutOutcome, Request,
    Result,
};

/// Bytes held in memory before they are written: one system call for each quarter of a megabyte. A
/// multiple of every alignment.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Bytes after which writing back begins. Twice as many are dirty at most.
const WRITE_OUT_BYTES: u64 = 1 << 20;

/// Space taken ahead where the page cache, which takes it late and in one piece, is passed by.
const ALLOCATE_BYTES: u64 = 8 << 20;

/// An object on its way. Dropping it removes its temporary file.
#[derive(Debug)]
pub(super) struct LocalWriter {
    env: Env,
    request: Request,
    store: LocalObjectStore,
    name: ObjectName,
    path: PathBuf,
    temporary: Temporary,
    /// Invariant: holds fewer than `BUFFER_BYTES` between calls, and belongs at `written`.
    buffer: BytesMut,
    written: u64,
    /// Writing back has begun for what lies before.
    written_out: u64,
    /// What writes are aligned to past the page cache.
    direct: Option<usize>,
    /// Past the page cache: space was taken up to here.
    allocated: u64,
    /// A write failed: what the file holds is not known.
    failed: bool,
}

impl LocalWriter {
    pub(super) fn new(
        store: &LocalObjectStore,
        request: Request,
        name: &ObjectName,
        placement: Placement,
    ) -> Result<LocalWriter> {
        let path = store.path(name)?;
        let mut temporary = store.with_reserve(request, || Temporary::create(store))?;
        store.shared.reserve.tend(store, request);
        let direct = store.shared.options.direct && placement.kind == ObjectKind::Table;
        let direct = if direct { Some(temporary.pass_cache()?) } else { None };
        Ok(LocalWriter {
            env: store.shared.env.clone(),
            request,
            store: store.clone(),
            name: name.clone(),
            path,
            temporary,
            buffer: BytesMut::new(),
            written: 0,
            written_out: 0,
            direct,
            allocated: 0,
            failed: false,
        })
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while self.buffer.len() + bytes.len() >= BUFFER_BYTES {
            if self.buffer.is_empty() {
                let (now, later) = bytes.split_at(bytes.len() - bytes.len() % BUFFER_BYTES);
                self.write_through(now)?;
                bytes = later;
            } else {
                let (now, later) = bytes.split_at(BUFFER_BYTES - self.buffer.len());
                self.buffer.extend_from_slice(now);
                self.flush()?;
                bytes = later;
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_through(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        if self.failed {
            return Err(Error::new(ErrorKind::Closed, "an earlier write to this object failed")
                .object(self.path.display()));
        }
        if !bytes.is_empty() {
            self.failed = true;
            self.take_space(bytes.len() as u64)?;
            self.store.with_reserve(self.request, || self.temporary.write(bytes, self.written))?;
            self.written += bytes.len() as u64;
            self.write_out()?;
            self.failed = false;
        }
        Ok(())
    }

    fn take_space(&mut self, bytes: u64) -> Result<()> {
        if self.direct.is_some() && self.written + bytes > self.allocated {
            let allocated = (self.written + bytes).next_multiple_of(ALLOCATE_BYTES);
            // A disk that has no room for more than is needed may have room for that.
            let ahead = self.temporary.allocate(allocated);
            if ahead.is_ok() {
                self.allocated = allocated;
            }
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        if self.direct.is_none() && self.written - self.written_out >= WRITE_OUT_BYTES {
            let out = self.temporary.write_out(self.written_out, self.written - self.written_out);
            out.inspect_err(|error| self.store.draw_after(self.request, error))?;
            self.written_out = self.written;
        }
        Ok(())
    }

    /// Writes the rest; past the page cache padded, and cut again.
    fn flush_last(&mut self) -> Result<()> {
        let length = self.written + self.buffer.len() as u64;
        let Some(alignment) = self.direct else { return self.flush() };
        self.buffer.resize(self.buffer.len().next_multiple_of(alignment), 0);
        self.flush()?;
        self.written = length;
        self.temporary.cut(length)
    }

    pub(super) fn publish(mut self) -> Result<(PutOutcome, ObjectInfo)> {
        self.flush_last()?;
        // Some file systems find out here that the disk is full.
        self.temporary.sync().inspect_err(|error| self.store.draw_after(self.request, error))?;
        let outcome = self
            .store
            .with_reserve(self.request, || self.store.publish_temporary(&self.temporary, &self.path))?;
        Ok((outcome, ObjectInfo { name: self.name, length: self.written }))
    }
}

impl ObjectWriter for LocalWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            begin(&self.env, self.request, "appending to an object").await?;
            self.write(&bytes)
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            begin(&self.env, self.request, "finishing an object").await?;
            let path = self.path.clone();
            match self.publish()? {
                (PutOutcome::Created, info) => Ok(info),
                (PutOutcome::Exists, _) => {
                    Err(Error::new(ErrorKind::AlreadyExists, "the object exists").object(path.display()))
                }
            }
        })
    }
}
