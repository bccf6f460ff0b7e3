//! Objects whose bytes come in pieces: one put when they are few, an upload of parts while they
//! come otherwise.
//!
//! A put is exclusive; an upload is not, in any of the protocols: a name is looked at before the
//! upload is completed, and names of tables are fresh (rule 6), so that two uploads of one name do
//! not meet. An upload that is dropped is given up in the background; one whose process died is
//! left to the bucket's lifecycle rule, since it is neither listed nor read.
//!
//! Whatever fails in passing is made again for
//! [`REMOTE_RETRY_TIME_MAX`](crate::registry::REMOTE_RETRY_TIME_MAX), whatever the URI's
//! `retry_seconds` says: beginning, sending and completing do no harm when they are done twice, and
//! nobody above repeats them ([`crate::layer::retry`]).
//!
//! Invariant: at most one part is being filled and [`PARTS_IN_FLIGHT_MAX`] are on their way.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tombolo_env::{BoxFuture, Completion, Env, completion};

use super::failure::Failure;
use super::{CloudObjectStore, wire};
use crate::backend::begin;
use crate::backend::remote::{Attempts, Effect};
use crate::{Error, ErrorKind, ObjectInfo, ObjectName, ObjectWriter, PutOutcome, Request, Result};

/// Bytes of a part, the last one apart: above what every protocol asks for, and 80 GB in the 10,000
/// parts that S3 allows.
pub(super) const PART_BYTES: usize = 8 << 20;

/// Parts on their way at once.
const PARTS_IN_FLIGHT_MAX: usize = 3;

/// Parts that S3 allows.
const PARTS_MAX: usize = 10_000;

/// An upload that was begun.
#[derive(Debug)]
struct Upload {
    id: String,
    /// Parts begun so far.
    begun: usize,
    /// Those that arrived, in order.
    parts: Vec<PartId>,
    /// Those on their way, oldest first.
    waiting: VecDeque<Completion<Result<PartId>>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct CloudWriter {
    store: CloudObjectStore,
    request: Request,
    name: ObjectName,
    key: Path,
    /// Of the object, for messages.
    place: String,
    /// The part that is being filled.
    filling: Vec<Bytes>,
    filling_bytes: usize,
    length: u64,
    upload: Option<Upload>,
}

impl CloudWriter {
    pub(super) fn new(store: CloudObjectStore, request: Request, name: ObjectName) -> Result<CloudWriter> {
        let (key, place) = (store.key(&name)?, store.bucket().place(name.as_str()));
        Ok(CloudWriter {
            store,
            request,
            name,
            key,
            place,
            filling: Vec::new(),
            filling_bytes: 0,
            length: 0,
            upload: None,
        })
    }

    /// Adds bytes, and sends the parts that are full.
    async fn add(&mut self, mut bytes: Bytes) -> Result<()> {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PART_BYTES - self.filling_bytes;
            let piece = bytes.split_to(room.min(bytes.len()));
            self.filling_bytes += piece.len();
            self.filling.push(piece);
            // A full part is sent when more comes: an object of just one part is a put.
            if self.filling_bytes == PART_BYTES && !bytes.is_empty() {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Sends what was filled as the next part.
    async fn send_part(&mut self) -> Result<()> {
        let payload: PutPayload = std::mem::take(&mut self.filling).into_iter().collect();
        self.filling_bytes = 0;
        if self.upload.is_none() {
            let id = self.begin_upload().await?;
            self.upload = Some(Upload { id, begun: 0, parts: Vec::new(), waiting: VecDeque::new() });
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        if upload.begun == PARTS_MAX {
            let message = format!("an object of more than {PARTS_MAX} parts of {PART_BYTES} bytes");
            return Err(Error::new(ErrorKind::Invalid, message).object(&self.place));
        }
        while upload.waiting.len() >= PARTS_IN_FLIGHT_MAX {
            arrived(upload, &self.place).await?;
        }
        let (completer, waiting) = completion();
        let part = Part {
            store: self.store.clone(),
            key: self.key.clone(),
            place: self.place.clone(),
            id: upload.id.clone(),
            index: upload.begun,
            payload,
        };
        let (gate, priority) = (Arc::clone(&self.store.shared.tasks.gate), self.request.priority);
        self.store.spawn(self.request.purpose, async move {
            let place = gate.enter(priority).await;
            let result = part.send().await;
            drop(place);
            completer.complete(result);
        });
        upload.begun += 1;
        upload.waiting.push_back(waiting);
        Ok(())
    }

    async fn begin_upload(&self) -> Result<String> {
        const DOING: &str = "beginning an upload";
        let (client, key, place, env) =
            (self.store.client(), self.key.clone(), self.place.clone(), self.store.env().clone());
        let work = async move {
            // One that was begun without our knowing is never completed, and neither listed nor
            // read.
            in_passing(&env, || client.create_multipart(&key))
                .await
                .map_err(|failure| failure.error(DOING, &place))
        };
        self.store.run(self.request, DOING, Effect::Nothing, work).await
    }

    async fn end(mut self) -> Result<ObjectInfo> {
        begin(self.store.env(), self.request, "finishing an object").await?;
        let info = ObjectInfo { name: self.name.clone(), length: self.length };
        if self.upload.is_none() {
            let payload = std::mem::take(&mut self.filling).into_iter().collect();
            let attempts = Attempts::persistent(self.store.env());
            return match self.store.put_payload(self.request, &self.name, payload, attempts).await? {
                PutOutcome::Created => Ok(info),
                PutOutcome::Exists => Err(self.taken()),
            };
        }
        if self.filling_bytes > 0 {
            self.send_part().await?;
        }
        if let Some(upload) = &mut self.upload {
            while !upload.waiting.is_empty() {
                arrived(upload, &self.place).await?;
            }
        }
        if self.is_taken().await? {
            return Err(self.taken());
        }
        self.complete().await?;
        self.upload = None;
        Ok(info)
    }

    /// Whether the name holds an object.
    async fn is_taken(&self) -> Result<bool> {
        const DOING: &str = "looking for an object of this name";
        let (client, key, place, env) =
            (self.store.client(), self.key.clone(), self.place.clone(), self.store.env().clone());
        let work = async move {
            match in_passing(&env, || client.head(&key)).await {
                Ok(_) => Ok(true),
                Err(failure) if failure.kind == ErrorKind::NotFound => Ok(false),
                Err(failure) => Err(failure.error(DOING, &place)),
            }
        };
        self.store.run(self.request, DOING, Effect::Nothing, work).await
    }

    fn taken(&self) -> Error {
        Error::new(ErrorKind::AlreadyExists, "the object exists").object(&self.place)
    }

    /// Makes the parts an object. When the answer is lost, the name tells: nobody else uses it.
    async fn complete(&mut self) -> Result<()> {
        const DOING: &str = "completing an upload";
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let (id, parts) = (upload.id.clone(), std::mem::take(&mut upload.parts));
        let (client, key, place, env) =
            (self.store.client(), self.key.clone(), self.place.clone(), self.store.env().clone());
        let length = self.length;
        let work = async move {
            let (mut attempts, mut is_unknown) = (Attempts::persistent(&env), false);
            loop {
                let failure = match wire::listen(client.complete_multipart(&key, &id, parts.clone())).await {
                    Ok(_) => return Ok(()),
                    Err(failure) => failure,
                };
                is_unknown |= failure.is_uncertain;
                if is_unknown && wire::listen(client.head(&key)).await.is_ok_and(|meta| meta.size == length) {
                    return Ok(());
                }
                if !(is_unknown || failure.kind == ErrorKind::Retry) || !attempts.again().await {
                    return Err(if is_unknown {
                        failure.unknown(DOING, &place)
                    } else {
                        failure.error(DOING, &place)
                    });
                }
            }
        };
        self.store.run(self.request, DOING, Effect::Change, work).await
    }
}

/// Waits for the oldest part on its way.
async fn arrived(upload: &mut Upload, place: &str) -> Result<()> {
    let Some(waiting) = upload.waiting.pop_front() else { return Ok(()) };
    match waiting.await {
        Some(part) => upload.parts.push(part?),
        None => {
            return Err(
                Error::new(ErrorKind::Closed, "the runtime ended while a part was on its way").object(place)
            );
        }
    }
    Ok(())
}

/// A part on its way.
struct Part {
    store: CloudObjectStore,
    key: Path,
    place: String,
    id: String,
    index: usize,
    payload: PutPayload,
}

impl Part {
    /// Sending a part again replaces it: any failure that passes is tried again.
    async fn send(self) -> Result<PartId> {
        let client = self.store.client();
        let sent = in_passing(self.store.env(), || {
            client.put_part(&self.key, &self.id, self.index, self.payload.clone())
        })
        .await;
        sent.map_err(|failure| failure.error("sending a part of an object", &self.place))
    }
}

/// Makes a request that does no harm when it is made twice, again and again while it fails in
/// passing.
async fn in_passing<T, F>(env: &Env, make: impl Fn() -> F) -> std::result::Result<T, Failure>
where
    F: Future<Output = object_store::Result<T>>,
{
    let mut attempts = Attempts::persistent(env);
    loop {
        match wire::listen(make()).await {
            Err(failure) if failure.kind == ErrorKind::Retry && attempts.again().await => {}
            result => return result,
        }
    }
}

impl ObjectWriter for CloudWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            begin(self.store.env(), self.request, "appending to an object").await?;
            // A copy, where the bytes are few beside the buffer that they are a part of: they wait
            // here for the rest of their part.
            let bytes =
                if bytes.len() < PART_BYTES / 64 { BytesMut::from(&bytes[..]).freeze() } else { bytes };
            self.add(bytes).await
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin((*self).end())
    }
}

impl Drop for CloudWriter {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let (client, key) = (self.store.client(), self.key.clone());
        self.store.spawn(self.request.purpose, async move {
            if let Err(failure) = wire::listen(client.abort_multipart(&key, &upload.id)).await {
                tracing::debug!(?failure, %key, "an upload that was given up stays for the bucket's \
                    lifecycle rule");
            }
        });
    }
}
