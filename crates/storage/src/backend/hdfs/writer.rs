//! Objects whose bytes come in pieces: written to a temporary file while they come, which gets its
//! name at the end.
//!
//! Invariant: at most [`FILLING_BYTES`] and what the client has on its way to the DataNodes (6 MiB)
//! are held.

use bytes::{Bytes, BytesMut};
use tombolo_env::BoxFuture;

use super::HdfsObjectStore;
use super::put::{Known, Temporary, unnamed_error};
use crate::backend::begin;
use crate::backend::remote::Effect;
use crate::{Error, ErrorKind, ObjectInfo, ObjectName, ObjectWriter, PutOutcome, Request, Result};

/// Bytes that are put together before they go on their way.
const FILLING_BYTES: usize = 1 << 20;

/// Where the bytes go.
#[derive(Debug)]
enum File {
    /// Nothing was sent yet.
    None,
    Begun(Box<Temporary>),
    /// A piece failed, and the file with it.
    Lost,
}

/// See the module.
#[derive(Debug)]
pub(super) struct HdfsWriter {
    store: HdfsObjectStore,
    request: Request,
    name: ObjectName,
    filling: Vec<Bytes>,
    filling_bytes: usize,
    length: u64,
    file: File,
}

/// Sends pieces to a file, which is made when there is none.
async fn send(
    store: &HdfsObjectStore,
    file: File,
    pieces: Vec<Bytes>,
    shown: &str,
) -> Result<Box<Temporary>> {
    let sent = async {
        let mut file = match file {
            File::Begun(file) => file,
            File::None | File::Lost => Box::new(Temporary::create(store).await?),
        };
        for piece in pieces {
            file.write(piece).await?;
        }
        Ok(file)
    };
    sent.await.map_err(|failure| unnamed_error(&failure, shown))
}

impl HdfsWriter {
    pub(super) fn new(store: HdfsObjectStore, request: Request, name: ObjectName) -> HdfsWriter {
        HdfsWriter {
            store,
            request,
            name,
            filling: Vec::new(),
            filling_bytes: 0,
            length: 0,
            file: File::None,
        }
    }

    fn shown(&self) -> String {
        self.store.place().shown(self.name.as_str())
    }

    /// The file, which is lost until it is given back.
    fn take_file(&mut self) -> Result<File> {
        match std::mem::replace(&mut self.file, File::Lost) {
            File::Lost => {
                Err(Error::new(ErrorKind::Retry, "an earlier piece of the object failed")
                    .object(self.shown()))
            }
            file => Ok(file),
        }
    }

    async fn flush(&mut self) -> Result<()> {
        let (store, file, pieces, shown) =
            (self.store.clone(), self.take_file()?, std::mem::take(&mut self.filling), self.shown());
        self.filling_bytes = 0;
        let work = async move { send(&store, file, pieces, &shown).await };
        self.file =
            File::Begun(self.store.run(self.request, "appending to an object", Effect::Nothing, work).await?);
        Ok(())
    }

    async fn end(mut self) -> Result<ObjectInfo> {
        const DOING: &str = "finishing an object";
        let info = ObjectInfo { name: self.name.clone(), length: self.length };
        let (store, file, pieces, shown) =
            (self.store.clone(), self.take_file()?, std::mem::take(&mut self.filling), self.shown());
        let name = self.name.clone();
        let work = async move {
            let file = send(&store, file, pieces, &shown).await?;
            let unnamed = file.close().await.map_err(|failure| unnamed_error(&failure, &shown))?;
            unnamed.name(&name, &Known::Length(info.length)).await.map(|outcome| (outcome, info, shown))
        };
        match self.store.run(self.request, DOING, Effect::Change, work).await? {
            (PutOutcome::Created, info, _) => Ok(info),
            (PutOutcome::Exists, _, shown) => {
                Err(Error::new(ErrorKind::AlreadyExists, "the object exists").object(shown))
            }
        }
    }
}

impl ObjectWriter for HdfsWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            begin(self.store.env(), self.request, "appending to an object").await?;
            // A copy, where the bytes are few beside the buffer that they are a part of: they wait
            // here for more.
            let bytes =
                if bytes.len() < FILLING_BYTES / 8 { BytesMut::from(&bytes[..]).freeze() } else { bytes };
            self.length += bytes.len() as u64;
            self.filling_bytes += bytes.len();
            self.filling.push(bytes);
            if self.filling_bytes < FILLING_BYTES { Ok(()) } else { self.flush().await }
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin((*self).end())
    }
}
