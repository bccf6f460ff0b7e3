//! Value objects as the engine uses them: a handle lives as long as a table's handle that refers to
//! it, and what tables write of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::compression::Compression;
use tombolo_format::expiry::{EXPIRY_BYTES, split_expiring};
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::property::Property;
use tombolo_format::value_object::{
    PROPERTY_VALUE_OBJECTS, REFERENCE_BYTES, REFERRED_OBJECTS_MAX, Reference, Referred, encode_referred,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, ObjectName, Purpose, Result};

use super::Handles;
use super::place::Tables;
use crate::budget::{Category, Charge};
use crate::manifest::names;
use crate::resolve::apart;
use crate::table::{NewValueObject, ValueObject, ValueWriter};

/// Room for a reference with an end.
pub(super) type EntryApart = [u8; REFERENCE_BYTES + EXPIRY_BYTES];

/// A value object ends when it has so many bytes: a smaller one is given up sooner, a larger one
/// takes fewer requests and names.
const OBJECT_BYTES: u64 = 64 << 20;

/// A value object to which tables of a version refer.
#[derive(Debug)]
pub(crate) struct ValueHandle {
    object: Arc<ValueObject>,
    handles: Arc<Handles>,
}

impl Drop for ValueHandle {
    fn drop(&mut self) {
        self.handles.forget_values(self.object.description().name);
    }
}

impl ValueHandle {
    pub(super) fn new(tables: &Tables, description: &TableDescription, handles: Arc<Handles>) -> ValueHandle {
        let (store, object) = tables.locate(description);
        let (cache, flash) = (Arc::clone(&tables.cache), tables.flash.cache().cloned());
        let object = ValueObject::new(description.clone(), object, store, cache, flash, tables.epoch);
        ValueHandle { object: Arc::new(object), handles }
    }

    /// The object.
    pub(crate) fn object(&self) -> &Arc<ValueObject> {
        &self.object
    }
}

/// A value that lies apart, by an entry that refers to it.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    pub(crate) object: Arc<ValueObject>,
    pub(crate) reference: Reference,
    pub(crate) user_key: Bytes,
    pub(crate) alignment: usize,
}

impl Apart {
    /// The value, if it is in memory.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn in_memory(&self, purpose: Purpose) -> Result<Option<Bytes>> {
        self.object.try_get(purpose, &self.reference, &self.user_key, self.alignment)
    }

    /// The value: at most one request.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    pub(crate) async fn get(&self, purpose: Purpose) -> Result<Bytes> {
        self.object.get(purpose, &self.reference, &self.user_key, self.alignment).await
    }
}

/// What a reference in an entry refers to, if a table says that it refers to that object.
///
/// # Errors
/// `Corrupt`, said of the table.
pub(super) fn referred<'a>(
    values: &'a [Arc<ValueHandle>],
    reference: &[u8],
    table: &ObjectName,
) -> Result<(Reference, &'a Arc<ValueObject>)> {
    let reference = Reference::decode(reference).map_err(|error| Error::format(table, 0, error))?;
    let identity = |handle: &Arc<ValueHandle>| handle.object.description().identity;
    match values.binary_search_by_key(&reference.object, identity) {
        Ok(at) => Ok((reference, &values[at].object)),
        Err(_) => {
            let expected = "a reference to an object to which the table's description says that it refers";
            Err(Error::corrupt(table, 0, expected, format!("{reference:?}")))
        }
    }
}

/// What a table that is being written refers to, and the value objects that are written with it.
///
/// Invariant: complete objects are remembered as left behind if the table is not finished.
#[derive(Debug)]
pub(super) struct Separating {
    tables: Tables,
    keyspace: u32,
    purpose: Purpose,
    compression: Compression,
    oldest_unix_seconds: u64,
    /// Values from here on lie apart; `None`: no new ones.
    from_bytes: Option<usize>,
    writer: Option<ValueWriter>,
    complete: Vec<TableDescription>,
    /// The object that is being completed: given up meanwhile, it may be there.
    completing: Option<TableName>,
    /// By identity of the object.
    referred: BTreeMap<u64, u64>,
    memory: Charge,
}

impl Drop for Separating {
    fn drop(&mut self) {
        let complete = self.complete.iter().map(|object| object.name);
        complete.chain(self.completing).for_each(|name| self.tables.leave_behind(name));
    }
}

impl Separating {
    pub(super) fn new(
        tables: &Tables,
        (keyspace, purpose): (u32, Purpose),
        compression: Compression,
        oldest_unix_seconds: u64,
        separate_bytes: u32,
    ) -> Separating {
        Separating {
            tables: tables.clone(),
            keyspace,
            purpose,
            compression,
            oldest_unix_seconds,
            from_bytes: usize::try_from(separate_bytes).ok().filter(|bytes| *bytes > 0),
            writer: None,
            complete: Vec::new(),
            completing: None,
            referred: BTreeMap::new(),
            memory: tables.cache.budget().charge(Category::Compactions, 0),
        }
    }

    /// An entry as the table holds it: a large value goes apart, and its reference takes its place.
    ///
    /// # Errors
    /// `Corrupt`, of a reference that is none; `Unsupported` when the table refers to too many
    /// objects.
    pub(super) fn place<'a>(
        &mut self,
        key: InternalKey<'a>,
        value: &'a [u8],
        room: &'a mut EntryApart,
        table: &ObjectName,
    ) -> Result<(InternalKey<'a>, &'a [u8])> {
        match key.trailer.kind() {
            Some(EntryKind::Put) if self.from_bytes.is_some_and(|bytes| value.len() >= bytes) => {
                let reference = self.put(key.user_key, key.trailer.sequence(), value)?;
                room[..REFERENCE_BYTES].copy_from_slice(&reference.encode());
                let trailer = Trailer::new(key.trailer.sequence(), EntryKind::SeparatedPut);
                Ok((InternalKey::new(key.user_key, trailer), &room[..REFERENCE_BYTES]))
            }
            Some(EntryKind::ExpiringPut)
                if self.from_bytes.is_some_and(|bytes| value.len() >= bytes + EXPIRY_BYTES) =>
            {
                let (value, end) = split_expiring(value).map_err(|error| Error::format(table, 0, error))?;
                let reference = self.put(key.user_key, key.trailer.sequence(), value)?;
                room[..REFERENCE_BYTES].copy_from_slice(&reference.encode());
                room[REFERENCE_BYTES..].copy_from_slice(&end.to_le_bytes());
                let trailer = Trailer::new(key.trailer.sequence(), EntryKind::SeparatedExpiringPut);
                Ok((InternalKey::new(key.user_key, trailer), &room[..]))
            }
            Some(EntryKind::SeparatedPut | EntryKind::SeparatedExpiringPut) => {
                let reference = apart(key.trailer, value).map_or(value, |(reference, _)| reference);
                let reference =
                    Reference::decode(reference).map_err(|error| Error::format(table, 0, error))?;
                let counted = if is_enabled(Mutant::MovedReferencesUncounted) {
                    Reference { record_bytes: 0, ..reference }
                } else {
                    reference
                };
                self.refer(&counted)?;
                Ok((key, value))
            }
            _ => Ok((key, value)),
        }
    }

    /// Puts a value into an object of this table's own.
    pub(super) fn put(
        &mut self,
        user_key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
    ) -> Result<Reference> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let name = self.tables.fresh_name();
                let new = NewValueObject {
                    name,
                    object: names::table(self.tables.incarnation, name),
                    identity: self.tables.env.random_u64(),
                    keyspace: self.keyspace,
                    compression: self.compression,
                    oldest_unix_seconds: self.oldest_unix_seconds,
                };
                self.writer.insert(ValueWriter::new(new, EntryKind::SeparatedPut.feature()))
            }
        };
        let reference = writer.add(user_key, sequence, value)?;
        self.refer(&reference)?;
        Ok(reference)
    }

    fn refer(&mut self, reference: &Reference) -> Result<()> {
        let bytes = self.referred.entry(reference.object).or_default();
        *bytes = bytes.saturating_add(u64::from(reference.record_bytes));
        if self.referred.len() <= REFERRED_OBJECTS_MAX {
            return Ok(());
        }
        let message = format!("one table refers to more than {REFERRED_OBJECTS_MAX} value objects");
        Err(Error::new(ErrorKind::Unsupported, message)
            .advice("close snapshots that are old, and compact the keyspace"))
    }

    /// Whether the table had better end before the next key.
    pub(super) fn is_full(&self) -> bool {
        self.referred.len() >= REFERRED_OBJECTS_MAX / 2
    }

    /// Bytes that wait to be handed to the store.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, ValueWriter::pending_bytes)
    }

    /// Hands what was put so far to the store; completes an object that is large enough.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let request = self.tables.request(self.purpose);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.memory.set(2 * writer.pending_bytes());
        writer.flush(&*self.tables.objects, request).await?;
        if writer.object_bytes() >= OBJECT_BYTES {
            self.complete().await?;
        }
        Ok(())
    }

    /// Makes the last object durable.
    async fn complete(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let name = writer.name();
        self.completing = Some(name);
        let finished = writer.finish(&*self.tables.objects, self.tables.request(self.purpose)).await;
        self.completing = None;
        if matches!(&finished, Err(error) if error.kind() == ErrorKind::OutcomeUnknown) {
            self.tables.leave_behind(name);
        }
        self.complete.push(finished?);
        Ok(())
    }

    /// Makes all objects durable: the table may be finished after, and named with them.
    pub(super) async fn finish(&mut self) -> Result<()> {
        self.complete().await
    }

    /// The objects, whose table was finished, and is described.
    pub(super) fn describe(mut self, table: &mut TableDescription) -> Vec<TableDescription> {
        if !self.referred.is_empty() {
            let referred: Vec<_> = self
                .referred
                .iter()
                .map(|(object, bytes)| Referred { object: *object, bytes: *bytes })
                .collect();
            let value = encode_referred(&referred);
            let property = Property { id: PROPERTY_VALUE_OBJECTS, is_critical: true, value: &value };
            table.properties = table.properties.with(property);
        }
        std::mem::take(&mut self.complete)
    }
}
