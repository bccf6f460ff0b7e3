//! Put-if-absent, and what becomes of one whose answer was lost.
//!
//! Each call marks its object with a number of its own. An answer that was lost leaves three
//! possibilities: the object is in place, it is not, or it will be. So the same put is made again:
//! `Created` settles it, and so does a name that is taken, since then a read shows whose mark it
//! has. Where a store keeps no marks, the bytes are compared. An outcome that is still not known
//! after some attempts is `OutcomeUnknown`: the manifest and the log go on from there, with the
//! same bytes to the same name. Of a table nobody does, so that it has more attempts, at what was
//! refused too.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, PutMode, PutOptions, PutPayload};
use tombolo_env::Env;

use super::{Client, CloudObjectStore, wire};
use crate::backend::remote::{Attempts, Effect};
use crate::{ErrorKind, ObjectName, PutOutcome, Request, Result};

/// The mark's name. Azure takes letters only.
const MARK: &str = "tomboloattempt";

/// One put until its outcome is known, or there were enough attempts.
pub(super) struct Put {
    pub(super) client: Arc<dyn Client>,
    pub(super) env: Env,
    pub(super) key: Path,
    /// The object, for messages.
    pub(super) place: String,
    pub(super) payload: PutPayload,
    pub(super) attempts: Attempts,
}

impl Put {
    pub(super) async fn run(mut self) -> Result<PutOutcome> {
        const DOING: &str = "putting an object";
        let mark = format!("{:016x}{:016x}", self.env.random_u64(), self.env.random_u64());
        let mut is_unknown = false;
        loop {
            let attributes = Attributes::from_iter([(Attribute::Metadata(MARK.into()), mark.clone())]);
            let options = PutOptions { mode: PutMode::Create, attributes, ..PutOptions::default() };
            let failure = match wire::listen(self.client.put_opts(&self.key, self.payload.clone(), options))
                .await
            {
                Ok(_) => return Ok(PutOutcome::Created),
                Err(failure) if failure.kind == ErrorKind::AlreadyExists && !is_unknown => {
                    return Ok(PutOutcome::Exists);
                }
                Err(failure) if failure.kind == ErrorKind::AlreadyExists => match self.is_ours(&mark).await {
                    Some(true) => return Ok(PutOutcome::Created),
                    Some(false) => return Ok(PutOutcome::Exists),
                    None => failure,
                },
                Err(failure) => failure,
            };
            is_unknown |= failure.is_uncertain;
            let passes = is_unknown || (failure.kind == ErrorKind::Retry && self.attempts.are_persistent());
            if !passes || !self.attempts.again().await {
                return Err(if is_unknown {
                    failure.unknown(DOING, &self.place)
                } else {
                    failure.error(DOING, &self.place)
                });
            }
        }
    }

    /// Whether the object at the name is this call's; `None` when that cannot be told now.
    async fn is_ours(&self, mark: &str) -> Option<bool> {
        let get = wire::listen(self.client.get_opts(&self.key, GetOptions::default())).await.ok()?;
        if let Some(found) = get.attributes.get(&Attribute::Metadata(MARK.into())) {
            return Some(found.as_ref() == mark);
        }
        if get.meta.size != self.payload.content_length() as u64 {
            return Some(false);
        }
        let found = wire::listen(get.bytes()).await.ok()?;
        Some(self.payload.iter().flatten().eq(found.iter()))
    }
}

impl CloudObjectStore {
    /// Puts bytes into a free name.
    pub(super) async fn put(&self, request: Request, name: &ObjectName, bytes: Bytes) -> Result<PutOutcome> {
        self.put_payload(request, name, bytes.into(), Attempts::new(self.env())).await
    }

    /// As [`CloudObjectStore::put`], of bytes in pieces and with these attempts.
    pub(super) async fn put_payload(
        &self,
        request: Request,
        name: &ObjectName,
        payload: PutPayload,
        attempts: Attempts,
    ) -> Result<PutOutcome> {
        let put = Put {
            client: self.client(),
            env: self.env().clone(),
            key: self.key(name)?,
            place: self.bucket().place(name.as_str()),
            payload,
            attempts,
        };
        self.run(request, "putting an object", Effect::Change, put.run()).await
    }
}
