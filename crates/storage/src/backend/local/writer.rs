//! Objects that come in pieces.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use tombolo_env::{BoxFuture, Env};

use super::LocalObjectStore;
use super::temporary::Temporary;
use crate::backend::begin;
use crate::{Error, ErrorKind, ObjectInfo, ObjectName, ObjectWriter, PutOutcome, Request, Result};

/// Bytes held in memory before they are written: one system call for each quarter of a megabyte.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// An object on its way. Dropping it removes its temporary file.
#[derive(Debug)]
pub(super) struct LocalWriter {
    env: Env,
    request: Request,
    store: LocalObjectStore,
    name: ObjectName,
    path: PathBuf,
    temporary: Temporary,
    /// Invariant: holds fewer than `BUFFER_BYTES`, and belongs at `written`.
    buffer: BytesMut,
    written: u64,
    /// A write failed: what the file holds is not known.
    failed: bool,
}

impl LocalWriter {
    pub(super) fn new(store: &LocalObjectStore, request: Request, name: &ObjectName) -> Result<LocalWriter> {
        Ok(LocalWriter {
            env: store.shared.env.clone(),
            request,
            store: store.clone(),
            name: name.clone(),
            path: store.path(name)?,
            temporary: Temporary::create(store)?,
            buffer: BytesMut::new(),
            written: 0,
            failed: false,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        let whole = bytes.len() - bytes.len() % BUFFER_BYTES;
        let (now, later) = bytes.split_at(whole);
        self.write_through(now)?;
        self.buffer.extend_from_slice(later);
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
            return Err(Error::new(ErrorKind::Closed, "an earlier write to this object failed").object(self.path.display()));
        }
        if !bytes.is_empty() {
            self.failed = true;
            self.temporary.write(bytes, self.written)?;
            self.failed = false;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }

    pub(super) fn publish(mut self) -> Result<(PutOutcome, ObjectInfo)> {
        self.flush()?;
        self.temporary.sync()?;
        let outcome = self.store.publish_temporary(&self.temporary, &self.path)?;
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
                (PutOutcome::Exists, _) => Err(Error::new(ErrorKind::AlreadyExists, "the object exists").object(path.display())),
            }
        })
    }
}
