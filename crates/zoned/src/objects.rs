//! Objects on zones.
//!
//! 1. An object's bytes are written to zones, in whole blocks.
//! 2. They are made durable.
//! 3. One transaction of the metadata makes the body and gives it its name, if that is free.
//!    Durable, it is acknowledged.
//!
//! Deleting is one transaction. What it un-names may be reset only after that is durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use tombolo_env::{BoxFuture, Env};
use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::{EXTENTS_MAX, Extent, ZoneRecord};
use tombolo_storage::facts::Fact;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::object::check_put;
use tombolo_storage::{
    Error, ErrorKind, FailureDomain, Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement,
    PutOutcome, Request, Result, StoreTraits, Survival,
};

use crate::allocate::Held;
use crate::device::Device;
use crate::instance::Handle;
use crate::state::State;
use crate::volume::Core;
use crate::zones::{For, ZoneFile, class_of, sort_of};

/// Bytes held in memory before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Most names of one page.
const LIST_PAGE_MAX: usize = 10_000;

/// Objects on a zoned device, below a prefix of names.
#[derive(Clone, Debug)]
pub struct ZonedObjectStore {
    env: Env,
    device: Handle,
    /// Empty, or ends in `/`.
    prefix: String,
}

/// Where every request begins: lets others run in a simulation, and turns back what comes too late.
async fn begin(env: &Env, request: Request, doing: &str) -> Result<()> {
    env.yield_now().await;
    match request.deadline {
        Some(deadline) if env.now() >= deadline => Err(Error::new(
            ErrorKind::DeadlineExceeded,
            format!("the deadline passed before {doing} began; nothing took effect"),
        )),
        _ => Ok(()),
    }
}

/// Reads of zones on their way: none of them is reset while this lives.
struct Readers(Vec<Arc<ZoneFile>>);

impl Drop for Readers {
    fn drop(&mut self) {
        for file in &self.0 {
            file.readers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The body of a name, while it is read.
struct Found {
    core: Arc<Core>,
    length: u64,
    extents: Arc<[Extent]>,
    _readers: Readers,
}

/// A part of a range, in one extent.
struct Part {
    extent: Extent,
    /// The first byte of it, in the extent.
    from: u64,
    bytes: usize,
}

impl ZonedObjectStore {
    /// The objects of a device whose names begin with `prefix`, which is empty or ends in `/`.
    pub fn new(env: &Env, device: Handle, prefix: String) -> ZonedObjectStore {
        ZonedObjectStore { env: env.clone(), device, prefix }
    }

    fn key(&self, name: &ObjectName) -> Result<String> {
        let key = format!("{}{name}", self.prefix);
        if key.len() > tombolo_storage::object::OBJECT_NAME_BYTES_MAX {
            let message = format!("the name {key:?} has {} bytes; 512 are the most", key.len());
            return Err(Error::new(ErrorKind::Invalid, message).advice("use a shorter name of the database"));
        }
        Ok(key)
    }

    fn not_found(&self, name: &ObjectName) -> Error {
        Error::new(ErrorKind::NotFound, "no such object").object(format!("{}/{name}", self.describe()))
    }

    /// The body of a name now, its zones held against resets.
    fn find(&self, name: &ObjectName) -> Result<Found> {
        let key = self.key(name)?;
        let Some(core) = self.device.seen()? else { return Err(self.not_found(name)) };
        let (length, extents, readers) = {
            // In this order everywhere: zones, then the state.
            let slots = core.zones.lock();
            let state = core.state.read();
            let Some((_, body)) = state.body_of(&key) else { return Err(self.not_found(name)) };
            let mut zones: Vec<u32> = body.extents.iter().map(|extent| extent.zone).collect();
            zones.dedup();
            let files: Vec<_> =
                zones.iter().map(|zone| Arc::clone(&slots.slots[*zone as usize].file)).collect();
            // Counted while the body is there: see `reset_if_dead`.
            for file in &files {
                file.readers.fetch_add(1, Ordering::SeqCst);
            }
            (body.length, Arc::clone(&body.extents), Readers(files))
        };
        Ok(Found { core, length, extents, _readers: readers })
    }

    async fn read_parts(&self, name: &ObjectName, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        for _ in 0..8 {
            let found = self.find(name)?;
            let Found { core, length, extents, .. } = &found;
            let mut results = Vec::with_capacity(ranges.len());
            let mut is_stale = false;
            for range in ranges {
                let parts = parts(extents, range.start.min(*length)..range.end.min(*length));
                match read_range(core, &parts).await {
                    Ok(bytes) => results.push(bytes),
                    // Who only looks may be overtaken by the process that holds the device.
                    Err(error) if !core.is_held => {
                        is_stale = self.is_elsewhere(name, extents)?;
                        if !is_stale {
                            return Err(error);
                        }
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !is_stale && (core.is_held || !self.is_elsewhere(name, extents)?) {
                return Ok(results);
            }
        }
        Err(Error::new(ErrorKind::Retry, "an object moves on while it is read").object(name))
    }

    fn is_elsewhere(&self, name: &ObjectName, extents: &Arc<[Extent]>) -> Result<bool> {
        Ok(self.find(name)?.extents != *extents)
    }

    /// Gives bytes that are durable a name, if it is free.
    fn name_body(&self, core: &Arc<Core>, made: &Made, name: &ObjectName) -> Result<PutOutcome> {
        let key = self.key(name)?;
        core.commit(|state| {
            if state.names.contains_key(key.as_str()) {
                return Ok((Vec::new(), PutOutcome::Exists));
            }
            check_tree(state, &key)?;
            let (kind, level, life) = sort_of(made.placement);
            let body = state.next;
            let record = ZoneRecord::Body {
                body,
                length: made.extents.iter().map(|extent| extent.bytes).sum(),
                kind,
                level,
                life,
                age_seconds: made.placement.age_seconds,
                born: state.written,
                extents: made.extents.clone(),
            };
            Ok((vec![record, ZoneRecord::Name { name: key.clone(), body }], PutOutcome::Created))
        })
    }

    fn writer(&self, request: Request, name: &ObjectName, placement: Placement) -> Result<Writer> {
        self.key(name)?;
        let core = self.device.held()?;
        let class = {
            let state = core.state.read();
            class_of(&state, sort_of(placement), core.metadata_capacity())
        };
        let failed_syncs = core.failed_syncs();
        Ok(Writer {
            store: self.clone(),
            request,
            name: name.clone(),
            placement,
            class,
            held: Held::new(&core),
            core,
            buffer: BytesMut::new(),
            extents: Vec::new(),
            hash: StreamHash::new(),
            failed_syncs,
            is_failed: false,
        })
    }
}

/// No object's name may be a directory of another's.
fn check_tree(state: &State, key: &str) -> Result<()> {
    let taken = |what: String| {
        Err(Error::new(ErrorKind::Invalid, what)
            .object(key)
            .advice("use a name that is no directory of another object's, nor below one"))
    };
    let below = format!("{key}/");
    if let Some((other, _)) = state.listed(&below, None).next() {
        return taken(format!("{other} lies below the name"));
    }
    for (at, _) in key.match_indices('/') {
        if state.names.contains_key(&key[..at]) {
            return taken(format!("the name lies below the object {}", &key[..at]));
        }
    }
    Ok(())
}

/// The parts of extents that hold a range of a body.
fn parts(extents: &[Extent], range: Range<u64>) -> Vec<Part> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for extent in extents {
        let end = begin + extent.bytes;
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            let bytes = usize::try_from(to - from).unwrap_or(usize::MAX);
            parts.push(Part { extent: *extent, from: from - begin, bytes });
        }
        begin = end;
    }
    parts
}

/// Reads parts; one that is a whole extent is checked against its hash.
async fn read_range(core: &Arc<Core>, parts: &[Part]) -> Result<Bytes> {
    if parts.is_empty() {
        return Ok(Bytes::new());
    }
    let block = core.block() as u64;
    let places = parts
        .iter()
        .map(|part| (part.extent.zone, u64::from(part.extent.block) * block + part.from, part.bytes));
    let mut read = Vec::with_capacity(parts.len());
    for (part, found) in parts.iter().zip(core.device.read_many(places.collect()).await) {
        let found = found.map_err(|error| core.read_failed(error, part.extent.zone))?;
        let is_whole = part.from == 0 && part.bytes as u64 == part.extent.bytes;
        if is_whole {
            check_hash(core, &part.extent, &found)?;
        }
        read.push(found);
    }
    Ok(match read.len() {
        1 => read.pop().unwrap_or_default().into(),
        _ => read.concat().into(),
    })
}

/// Whether an extent's bytes are those that were written.
pub(crate) fn check_hash(core: &Core, extent: &Extent, bytes: &[u8]) -> Result<()> {
    let mut hash = StreamHash::new();
    hash.update(bytes);
    if hash.digest() == extent.hash {
        return Ok(());
    }
    Err(Error::corrupt(
        format!("{} zone {}", core.device.describe(), extent.zone),
        u64::from(extent.block) * core.block() as u64,
        format!("{} bytes with the hash {:016x}", extent.bytes, extent.hash),
        format!("{:016x}", hash.digest()),
    ))
}

/// Bytes that are durable, and have no name yet.
struct Made {
    extents: Vec<Extent>,
    placement: Placement,
}

impl ObjectStore for ZonedObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            begin(&self.env, request, "creating an object").await?;
            Ok(Box::new(self.writer(request, name, placement)?) as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.env, request, "putting an object").await?;
            check_put(name, bytes.len())?;
            let mut writer = self.writer(request, name, placement)?;
            // Spares the write when the name is taken already; the transaction decides otherwise.
            if writer.core.state.read().names.contains_key(self.key(name)?.as_str()) {
                return Ok(PutOutcome::Exists);
            }
            writer.write(&bytes)?;
            let (outcome, _) = writer.publish()?;
            self.env.yield_now().await;
            Ok(outcome)
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            begin(&self.env, request, "reading an object").await?;
            let mut read = self.read_parts(name, std::slice::from_ref(&range)).await?;
            Ok(read.pop().unwrap_or_default())
        })
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            begin(&self.env, request, "reading an object").await?;
            self.read_parts(name, ranges).await
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            begin(&self.env, request, "asking for an object's length").await?;
            Ok(self.find(name)?.length)
        })
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(async move {
            begin(&self.env, request, "listing objects").await?;
            if !ObjectName::may_begin_with(prefix) {
                return Ok(Listed { objects: Vec::new(), more: false });
            }
            let Some(core) = self.device.seen()? else {
                return Ok(Listed { objects: Vec::new(), more: false });
            };
            let (whole, after) =
                (format!("{}{prefix}", self.prefix), after.map(|after| format!("{}{after}", self.prefix)));
            let state = core.state.read();
            let mut matching = state.listed(&whole, after.as_deref());
            let mut objects = Vec::new();
            for (name, body) in matching.by_ref().take(limit.min(LIST_PAGE_MAX)) {
                let length = state.bodies.get(&body).map_or(0, |body| body.length);
                objects.push(ObjectInfo { name: ObjectName::new(&name[self.prefix.len()..])?, length });
            }
            Ok(Listed { objects, more: matching.next().is_some() })
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            begin(&self.env, request, "deleting an object").await?;
            let key = self.key(name)?;
            let core = self.device.held()?;
            let zones = core.commit(|state| {
                let Some((_, body)) = state.body_of(&key) else { return Ok((Vec::new(), Vec::new())) };
                let zones: Vec<u32> = body.extents.iter().map(|extent| extent.zone).collect();
                if is_enabled(Mutant::ZonedResetBeforeRecord) {
                    zones.iter().for_each(|zone| drop(core.device.reset(*zone)));
                }
                Ok((vec![ZoneRecord::NameGone { name: key.clone() }], zones))
            })?;
            core.reset_dead(&zones);
            self.env.yield_now().await;
            Ok(())
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.env, request, "copying an object").await?;
            let (from_key, to_key) = (self.key(from)?, self.key(to)?);
            let core = self.device.held()?;
            let outcome = core.commit(|state| {
                let Some((body, _)) = state.body_of(&from_key) else { return Err(self.not_found(from)) };
                if state.names.contains_key(to_key.as_str()) {
                    return Ok((Vec::new(), PutOutcome::Exists));
                }
                check_tree(state, &to_key)?;
                Ok((vec![ZoneRecord::Name { name: to_key.clone(), body }], PutOutcome::Created))
            })?;
            self.env.yield_now().await;
            Ok(outcome)
        })
    }

    fn facts(&self, _request: Request) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(async move {
            match self.device.seen()? {
                Some(core) => Ok(crate::space::facts(&core)),
                None => Ok(vec![Fact::fine("device", "zones are made of a file at the first write")]),
            }
        })
    }

    // Both happen in one transaction, of one process.
    fn traits(&self) -> StoreTraits {
        StoreTraits { must_prove_put_if_absent: false, lists_may_walk: false }
    }

    fn survival(&self) -> Survival {
        let durable = "survives the process, the host's restart and a loss of power; is lost with the device, or \
            with a zone of it that goes bad";
        Survival {
            store: self.describe(),
            domain: FailureDomain::Host,
            accepted: durable.into(),
            durable: durable.into(),
            notes: vec![
                "One process owns a zoned device. Another takes over when that has ended, and never while it is \
                paused."
                    .into(),
                "Damage of the very last change of the metadata before a crash cannot be told from a write that \
                the crash tore."
                    .into(),
            ],
        }
    }

    fn describe(&self) -> String {
        let prefix = self.prefix.trim_end_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("zoned://{}{slash}{prefix}", self.device.place().path().display())
    }
}

/// An object on its way.
#[derive(Debug)]
struct Writer {
    store: ZonedObjectStore,
    core: Arc<Core>,
    request: Request,
    name: ObjectName,
    placement: Placement,
    class: u8,
    held: Held,
    /// Invariant: holds fewer than `BUFFER_BYTES` between calls.
    buffer: BytesMut,
    extents: Vec<Extent>,
    /// Of the last extent.
    hash: StreamHash,
    /// Syncs that had failed when it began.
    failed_syncs: u64,
    is_failed: bool,
}

impl Writer {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while self.buffer.len() + bytes.len() >= BUFFER_BYTES {
            let (now, later) = bytes.split_at(BUFFER_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(now);
            bytes = later;
            let whole = std::mem::take(&mut self.buffer);
            self.write_through(&whole, whole.len())?;
            self.buffer = whole;
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes whole blocks, of which the first `length` bytes are the object's.
    fn write_through(&mut self, blocks: &[u8], length: usize) -> Result<()> {
        if self.is_failed {
            return Err(
                Error::new(ErrorKind::Closed, "an earlier write to this object failed").object(&self.name)
            );
        }
        self.is_failed = true;
        let block = self.core.block() as u64;
        let mut done = 0;
        while done < blocks.len() {
            let before = self.extents.last().map(|extent| extent.zone);
            let whom = For::Request(self.request.purpose);
            let (zone, at, count) =
                self.core.write_data(&mut self.held, self.class, whom, before, &blocks[done..])?;
            let own = &blocks[done..(done + count).min(length)];
            let at = u32::try_from(at / block).unwrap_or(u32::MAX);
            match self.extents.last_mut() {
                Some(last)
                    if last.zone == zone
                        && last.bytes.is_multiple_of(block)
                        && u64::from(last.block) + last.bytes / block == u64::from(at) =>
                {
                    self.hash.update(own);
                    last.bytes += own.len() as u64;
                    last.hash = self.hash.digest();
                }
                _ => {
                    self.hash = StreamHash::new();
                    self.hash.update(own);
                    let (bytes, hash) = (own.len() as u64, self.hash.digest());
                    self.extents.push(Extent { zone, block: at, bytes, hash });
                }
            }
            done += count;
        }
        if self.extents.len() > EXTENTS_MAX {
            let message = format!("the object lies in more than {EXTENTS_MAX} pieces");
            return Err(Error::new(ErrorKind::OutOfSpace, message).object(&self.name));
        }
        self.is_failed = false;
        Ok(())
    }

    fn publish(mut self) -> Result<(PutOutcome, ObjectInfo)> {
        let length = self.buffer.len();
        if length > 0 {
            let mut last = std::mem::take(&mut self.buffer);
            last.resize(length.next_multiple_of(self.core.block()), 0);
            self.write_through(&last, length)?;
        }
        if self.is_failed {
            return Err(
                Error::new(ErrorKind::Closed, "an earlier write to this object failed").object(&self.name)
            );
        }
        if !self.extents.is_empty() {
            self.core.sync_since(self.failed_syncs)?;
        }
        let length = self.extents.iter().map(|extent| extent.bytes).sum();
        let made = Made { extents: std::mem::take(&mut self.extents), placement: self.placement };
        let outcome = self.store.name_body(&self.core, &made, &self.name)?;
        Ok((outcome, ObjectInfo { name: self.name.clone(), length }))
    }
}

impl ObjectWriter for Writer {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            begin(&self.store.env, self.request, "appending to an object").await?;
            self.write(&bytes)
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            begin(&self.store.env, self.request, "finishing an object").await?;
            let (env, name) = (self.store.env.clone(), self.name.clone());
            let (outcome, info) = self.publish()?;
            env.yield_now().await;
            match outcome {
                PutOutcome::Created => Ok(info),
                PutOutcome::Exists => {
                    Err(Error::new(ErrorKind::AlreadyExists, "the object exists").object(name))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
