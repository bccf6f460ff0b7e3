//! Value objects on an object store: values that lie apart from the tables that refer to them,
//! written in order, and read record by record through the block cache.
//!
//! Requests: a value takes one, or none where the cache or the flash cache has it. Several of one
//! object take one vectored request, in which near ones are read together with what lies between.
//!
//! Invariant: no value is given before its record was found right: by its checksum, which is bound
//! to the object's identity and the offset, by the reference's copy of that checksum, and by the
//! hash of the key.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::FormatError;
use tombolo_format::compression::Compression;
use tombolo_format::flash::FlashKey;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{LEVEL_VALUES, TableDescription, TableName};
use tombolo_format::property::PropertyList;
use tombolo_format::value_object::{
    Next, Reference, VALUE_OBJECT_FOOTER_BYTES, VALUE_OBJECT_HEADER_BYTES, ValueObjectBuilder,
    ValueObjectChecker,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, ObjectWriter, Placement, Purpose,
    Request, Result,
};

use super::flight::Flights;
use crate::blocks;
use crate::budget::{Category, MemoryBudget};
use crate::cache::{ApartValue, BlockCache, CacheKey, Kept, Pinned, Resident};
use crate::deadline;
use crate::flash::FlashCache;

/// Records no farther apart are read together with what lies between: cheaper than a request.
const GAP_BYTES_MAX: u64 = 32 << 10;
/// Bytes that one request reads of an object, unless a record has more.
const TOGETHER_BYTES_MAX: u64 = 4 << 20;
/// Bytes read at once to check an object, unless a record has more.
const CHECK_BYTES: u64 = 1 << 20;
/// Damaged records of one object that are told.
const DAMAGES_MAX: usize = 1000;

/// A value object, for reading. Safe to use from many threads.
pub struct ValueObject {
    description: TableDescription,
    object: ObjectName,
    store: Arc<dyn ObjectStore>,
    cache: Arc<BlockCache>,
    flash: Option<Arc<FlashCache>>,
    epoch: Epoch,
    /// Those being fetched, by offset.
    flights: Arc<Flights<Result<Kept>>>,
}

impl std::fmt::Debug for ValueObject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ValueObject").field("object", &self.object).finish_non_exhaustive()
    }
}

impl ValueObject {
    /// The value object that `description` says `object` holds. Reads nothing.
    pub fn new(
        description: TableDescription,
        object: ObjectName,
        store: Arc<dyn ObjectStore>,
        cache: Arc<BlockCache>,
        flash: Option<Arc<FlashCache>>,
        epoch: Epoch,
    ) -> ValueObject {
        ValueObject { description, object, store, cache, flash, epoch, flights: Arc::default() }
    }

    /// A request, with the deadline of the operation that makes it.
    fn request(&self, purpose: Purpose) -> Request {
        Request::new(purpose, self.epoch).until(deadline::current())
    }

    /// The memory that its values count towards.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        self.cache.budget()
    }

    /// What the manifest says about it.
    pub fn description(&self) -> &TableDescription {
        &self.description
    }

    /// The value to which `reference` refers, if it is in memory.
    ///
    /// # Errors
    /// `Corrupt` when the host's memory holds it, damaged.
    pub fn try_get(
        &self,
        purpose: Purpose,
        reference: &Reference,
        user_key: &[u8],
        alignment: usize,
    ) -> Result<Option<Bytes>> {
        if let Some(value) = self.known(reference) {
            return Ok(Some(value));
        }
        self.check_bounds(reference)?;
        let request = self.request(purpose);
        let (mut taken, base) = (None, self.description.offset);
        let range = base + reference.offset..base + reference.end();
        self.store.with_held(request, &self.object, range, &mut |record| {
            taken = Some(self.take_in(record, reference, user_key, alignment));
        });
        let pinned: Option<Pinned> = taken.transpose()?;
        pinned.map(|pinned| self.value_of(pinned, reference)).transpose()
    }

    /// The value to which `reference` refers: at most one request, which all share who miss the
    /// same meanwhile.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns.
    pub async fn get(
        self: &Arc<Self>,
        purpose: Purpose,
        reference: &Reference,
        user_key: &[u8],
        alignment: usize,
    ) -> Result<Bytes> {
        if let Some(value) = self.try_get(purpose, reference, user_key, alignment)? {
            return Ok(value);
        }
        let request = self.request(purpose);
        deadline::waits_for(format_args!(
            "bytes {} to {} of {}",
            reference.offset,
            reference.end(),
            self.object
        ));
        loop {
            let (object, reference, key) = (Arc::clone(self), *reference, Bytes::copy_from_slice(user_key));
            let fetch = async move {
                let record = object.record(request, &reference).await?;
                Ok(object.take_in(&record, &reference, &key, alignment)?.keep())
            };
            let (waiter, is_anothers) = self.flights.join_or(reference.offset, fetch);
            match waiter.await {
                // Another's deadline is not this one's.
                Err(error) if is_anothers && error.kind() == ErrorKind::DeadlineExceeded => {}
                Ok(kept) => return self.value_of(kept.pin(), &reference),
                Err(error) => return Err(error),
            }
        }
    }

    /// The values to which several references refer, in their order.
    ///
    /// # Errors
    /// As [`ValueObject::get`].
    pub async fn get_several(
        self: &Arc<Self>,
        purpose: Purpose,
        wanted: &[(Reference, &[u8])],
        alignment: usize,
    ) -> Result<Vec<Bytes>> {
        if let [(reference, user_key)] = wanted {
            return Ok(vec![self.get(purpose, reference, user_key, alignment).await?]);
        }
        let request = self.request(purpose);
        let mut values = vec![None; wanted.len()];
        let mut missing = Vec::new();
        for (at, (reference, user_key)) in wanted.iter().enumerate() {
            values[at] = self.try_get(purpose, reference, user_key, alignment)?;
            if values[at].is_none() {
                missing.push(at);
            }
        }
        for (at, record) in self.records(request, wanted, missing).await? {
            let (reference, user_key) = wanted[at];
            self.offer(request, &reference, &record);
            let pinned = self.take_in(&record, &reference, user_key, alignment)?;
            values[at] = Some(self.value_of(pinned, &reference)?);
        }
        Ok(values.into_iter().flatten().collect())
    }

    /// As [`ValueObject::get_several`], for one who needs them once: they enter no cache.
    ///
    /// # Errors
    /// As there.
    pub async fn read_once(&self, purpose: Purpose, wanted: &[(Reference, &[u8])]) -> Result<Vec<Bytes>> {
        let mut values = vec![None; wanted.len()];
        let mut missing = Vec::new();
        for (at, (reference, _)) in wanted.iter().enumerate() {
            self.check_bounds(reference)?;
            values[at] = self.known(reference);
            if values[at].is_none() {
                missing.push(at);
            }
        }
        for (at, record) in self.records(self.request(purpose), wanted, missing).await? {
            let (reference, user_key) = wanted[at];
            let value = reference.open(&record, user_key, 1).map_err(|error| self.damaged(error))?;
            values[at] = Some(value);
        }
        Ok(values.into_iter().flatten().collect())
    }

    /// Just the bytes of those records of `wanted` whose places are `missing`: one vectored
    /// request, in which near ones are read together.
    async fn records(
        &self,
        request: Request,
        wanted: &[(Reference, &[u8])],
        mut missing: Vec<usize>,
    ) -> Result<Vec<(usize, Bytes)>> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        missing.sort_unstable_by_key(|at| wanted[*at].0.offset);
        let references: Vec<_> = missing.iter().map(|at| wanted[*at].0).collect();
        let (ranges, places) = together(&references);
        let base = self.description.offset;
        let absolute: Vec<_> = ranges.iter().map(|range| base + range.start..base + range.end).collect();
        let read = self.store.read_ranges(request, &self.object, &absolute).await;
        let pieces = read.map_err(|error| self.judged(error))?;
        let record = |(at, place): (usize, usize)| {
            let reference = wanted[at].0;
            let record = pieces.get(place).and_then(|piece| {
                let start = usize::try_from(reference.offset - ranges[place].start).ok()?;
                let end = start.checked_add(reference.record_bytes as usize)?;
                (end <= piece.len()).then(|| piece.slice(start..end))
            });
            record.map(|record| (at, record)).ok_or_else(|| self.too_short(&reference))
        };
        missing.into_iter().zip(places).map(record).collect()
    }

    /// Whether a reference may be one to this object.
    ///
    /// # Errors
    /// `Corrupt`.
    fn check_bounds(&self, reference: &Reference) -> Result<()> {
        let end = self.description.length.saturating_sub(VALUE_OBJECT_FOOTER_BYTES as u64);
        if reference.end() <= end && reference.object == self.description.identity {
            return Ok(());
        }
        let expected = format!("records of {:#018x} up to byte {end}", self.description.identity);
        Err(Error::corrupt(&self.object, reference.offset, expected, format!("{reference:?}")))
    }

    /// Reads the whole object and checks every record.
    ///
    /// # Errors
    /// `Corrupt`, of the first damage; what the store returns.
    pub async fn verify(&self) -> Result<()> {
        self.damages().await?.into_iter().next().map_or(Ok(()), Err)
    }

    /// Reads the whole object and checks every record; tells all that is damaged, up to
    /// `DAMAGES_MAX`. Behind a record whose length is damaged, nothing can be found.
    ///
    /// # Errors
    /// What the store returns.
    pub async fn damages(&self) -> Result<Vec<Error>> {
        let mut damages = Vec::new();
        match self.check_all(&mut damages).await {
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            Err(error) => damages.push(error),
            Ok(()) => {}
        }
        Ok(damages)
    }

    /// The first damage behind which nothing can be checked is the error; others come before it.
    async fn check_all(&self, damages: &mut Vec<Error>) -> Result<()> {
        let request = self.request(Purpose::Verify);
        let (length, base) = (self.description.length, self.description.offset);
        let mut held = (0, Bytes::new());
        let mut checker: Option<ValueObjectChecker> = None;
        loop {
            let at = checker.as_ref().map_or(0, ValueObjectChecker::at);
            let mut wanted = VALUE_OBJECT_HEADER_BYTES as u64;
            loop {
                let end = at.saturating_add(wanted).min(length);
                if end > held.0 + held.1.len() as u64 {
                    let end = end.max(at.saturating_add(CHECK_BYTES)).min(length);
                    drop(std::mem::take(&mut held.1));
                    let _charge = self.cache.budget().charge(Category::Scans, end - at);
                    let piece = self.read(request, at..end).await?;
                    if piece.len() as u64 != end - at {
                        let expected = format!("a value object of {length} bytes");
                        let found = base + at + piece.len() as u64;
                        return Err(Error::corrupt(&self.object, found, expected, "the end of the object"));
                    }
                    held = (at, piece);
                }
                let start = usize::try_from(at - held.0).unwrap_or(usize::MAX);
                let rest = held.1.slice(start.min(held.1.len())..);
                let Some(checker) = &mut checker else {
                    let begun = ValueObjectChecker::begin(
                        &rest,
                        self.description.keyspace,
                        self.description.identity,
                    );
                    checker = Some(begun.map_err(|error| self.damaged(error))?);
                    break;
                };
                match checker.next(&rest, length).map_err(|error| self.damaged(error))? {
                    Next::Record(bytes) if rest.len() < bytes as usize => wanted = u64::from(bytes),
                    Next::Record(bytes) => {
                        let record = rest.slice(..bytes as usize);
                        if let Err(error) = checker.record(&record) {
                            let error = self.damaged(error);
                            if error.kind() != ErrorKind::Corrupt || damages.len() + 1 >= DAMAGES_MAX {
                                return Err(error);
                            }
                            damages.push(error);
                            checker.pass(bytes);
                        }
                        break;
                    }
                    Next::Footer if rest.len() < VALUE_OBJECT_FOOTER_BYTES => {
                        wanted = VALUE_OBJECT_FOOTER_BYTES as u64;
                    }
                    // It counts the values of damaged records, too.
                    Next::Footer if !damages.is_empty() => return Ok(()),
                    Next::Footer => return self.check_end(checker, &rest),
                }
            }
        }
    }

    fn check_end(&self, checker: &ValueObjectChecker, rest: &[u8]) -> Result<()> {
        let footer = checker.end(rest).map_err(|error| self.damaged(error))?;
        if footer.records == self.description.entries {
            return Ok(());
        }
        let expected = format!("{} records", self.description.entries);
        Err(Error::corrupt(&self.object, checker.at(), expected, footer.records))
    }

    fn key(&self, reference: &Reference) -> CacheKey {
        CacheKey { table: self.description.name, offset: reference.offset }
    }

    fn flash_key(&self, reference: &Reference) -> FlashKey {
        FlashKey { table: self.description.name, offset: reference.offset }
    }

    fn known(&self, reference: &Reference) -> Option<Bytes> {
        let pinned = self.cache.get(&self.key(reference))?;
        pinned.apart_value(|checksum| checksum == reference.checksum)
    }

    fn value_of(&self, pinned: Pinned, reference: &Reference) -> Result<Bytes> {
        let is = |checksum| checksum == reference.checksum || is_enabled(Mutant::ValueReferenceUnchecked);
        pinned.apart_value(is).ok_or_else(|| {
            let expected = format!("a record with checksum {:#010x}", reference.checksum);
            Error::corrupt(&self.object, reference.offset, expected, "another one")
        })
    }

    /// Just the bytes of a record: out of the flash cache, or else with one request.
    async fn record(&self, request: Request, reference: &Reference) -> Result<Bytes> {
        let key = self.flash_key(reference);
        if let Some(flash) = &self.flash
            && let Some(record) = flash.get(key, u64::from(reference.record_bytes)).await
        {
            return Ok(record);
        }
        let record = self.read(request, reference.offset..reference.end()).await?;
        if record.len() != reference.record_bytes as usize {
            return Err(self.too_short(reference));
        }
        self.offer(request, reference, &record);
        Ok(record)
    }

    fn offer(&self, request: Request, reference: &Reference, record: &[u8]) {
        if let Some(flash) = &self.flash {
            flash.offer(request.purpose, self.flash_key(reference), record);
        }
    }

    /// Puts a value into the cache, out of just the bytes of its record.
    fn take_in(
        &self,
        record: &[u8],
        reference: &Reference,
        user_key: &[u8],
        alignment: usize,
    ) -> Result<Pinned> {
        let reference = if is_enabled(Mutant::ValueReferenceUnchecked) {
            reference.believing(record)
        } else {
            *reference
        };
        let key = self.key(&reference);
        let memory = reference.open_into(record, user_key, |bytes| self.cache.memory(key, bytes, alignment));
        let memory = memory.map_err(|error| {
            let error = self.damaged(error);
            if let Some(flash) = &self.flash {
                flash.forget_damaged(self.flash_key(&reference), &error);
            }
            error
        })?;
        blocks::read();
        let (bytes, held) = memory.freeze();
        let value = ApartValue { bytes, checksum: reference.checksum, alignment };
        Ok(self.cache.insert_held(key, Resident::Value(value), held))
    }

    async fn read(&self, request: Request, range: Range<u64>) -> Result<Bytes> {
        let base = self.description.offset;
        let read = self.store.read(request, &self.object, base + range.start..base + range.end).await;
        read.map_err(|error| self.judged(error))
    }

    /// An object that the manifest names and the store does not have is damage.
    fn judged(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        let expected =
            format!("a value object of {} bytes, which the manifest names", self.description.length);
        Error::corrupt(&self.object, 0, expected, "no such object")
    }

    #[cold]
    fn damaged(&self, error: FormatError) -> Error {
        Error::format(&self.object, self.description.offset, error)
    }

    #[cold]
    fn too_short(&self, reference: &Reference) -> Error {
        let expected = format!("a record of {} bytes", reference.record_bytes);
        Error::corrupt(&self.object, reference.offset, expected, "the end of the object")
    }
}

/// The ranges that hold records, which come in the order of their offsets: near ones share one. And
/// for each record, which range holds it.
fn together(references: &[Reference]) -> (Vec<Range<u64>>, Vec<usize>) {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut places = Vec::with_capacity(references.len());
    for reference in references {
        let (start, end) = (reference.offset, reference.end());
        match ranges.last_mut() {
            Some(last)
                if start <= last.end.saturating_add(GAP_BYTES_MAX)
                    && end.saturating_sub(last.start) <= TOGETHER_BYTES_MAX =>
            {
                last.end = last.end.max(end);
            }
            _ => ranges.push(start..end),
        }
        places.push(ranges.len() - 1);
    }
    (ranges, places)
}

/// What a new value object will be.
#[derive(Clone, Debug)]
pub struct NewValueObject {
    /// Its fresh name, never used before (rule 6).
    pub name: TableName,
    /// The object that will hold it.
    pub object: ObjectName,
    /// Fresh randomness, by which tables refer to it.
    pub identity: u64,
    /// The keyspace whose values are in it.
    pub keyspace: u32,
    /// How its values are compressed.
    pub compression: Compression,
    /// When its oldest value was written, in seconds since the Unix epoch.
    pub oldest_unix_seconds: u64,
}

/// A value object that is being written. Nothing is visible before [`ValueWriter::finish`]
/// returned; dropping the writer leaves nothing.
#[derive(Debug)]
pub struct ValueWriter {
    new: NewValueObject,
    builder: ValueObjectBuilder,
    object: Option<Box<dyn ObjectWriter>>,
    keys: Option<(Bytes, Vec<u8>)>,
    sequences: (SequenceNumber, SequenceNumber),
    features: u64,
}

impl ValueWriter {
    /// Begins an object, of whose entries these are the feature bits. Asks nothing of the store
    /// yet.
    pub fn new(new: NewValueObject, features: u64) -> ValueWriter {
        let builder = ValueObjectBuilder::new(new.keyspace, new.identity, new.compression);
        let sequences = (SequenceNumber::MAX, SequenceNumber::ZERO);
        ValueWriter { new, builder, object: None, keys: None, sequences, features }
    }

    /// Its name.
    pub fn name(&self) -> TableName {
        self.new.name
    }

    /// Adds a value, in memory; says where it lies.
    ///
    /// # Errors
    /// `Invalid` for a value beyond the limits.
    pub fn add(&mut self, user_key: &[u8], sequence: SequenceNumber, value: &[u8]) -> Result<Reference> {
        let added = self.builder.add(user_key, value);
        let reference = added.map_err(|error| Error::format(&self.new.object, 0, error))?;
        match &mut self.keys {
            Some((_, last)) => {
                last.clear();
                last.extend_from_slice(user_key);
            }
            None => self.keys = Some((Bytes::copy_from_slice(user_key), user_key.to_vec())),
        }
        self.sequences = (self.sequences.0.min(sequence), self.sequences.1.max(sequence));
        Ok(reference)
    }

    /// Bytes so far.
    pub fn object_bytes(&self) -> u64 {
        self.builder.object_bytes()
    }

    /// Bytes that [`ValueWriter::flush`] would hand to the store.
    pub fn pending_bytes(&self) -> u64 {
        self.builder.output_bytes() as u64
    }

    /// Hands the output so far to the store.
    ///
    /// # Errors
    /// What the store returns: the object is lost, begin again under a fresh name.
    pub async fn flush(&mut self, store: &dyn ObjectStore, request: Request) -> Result<()> {
        if self.builder.output_bytes() == 0 {
            return Ok(());
        }
        let output = self.builder.take_output();
        let object = match &mut self.object {
            Some(object) => object,
            None => {
                let placement = Placement::new(ObjectKind::Table, Life::Long);
                self.object.insert(store.create(request, &self.new.object, placement).await?)
            }
        };
        object.append(output).await
    }

    /// Completes the object: it is durable when this returns.
    ///
    /// # Errors
    /// As [`ValueWriter::flush`].
    pub async fn finish(mut self, store: &dyn ObjectStore, request: Request) -> Result<TableDescription> {
        self.flush(store, request).await?;
        let (Some(mut object), Some((first_key, last_key))) = (self.object, self.keys) else {
            return Err(Error::new(ErrorKind::Bug, "a value object without values").object(&self.new.object));
        };
        let (end, footer) = self.builder.finish();
        object.append(end).await?;
        let info = object.finish().await?;
        if info.length != footer.object_bytes {
            let (expected, found) = (format!("an object of {} bytes", footer.object_bytes), info.length);
            return Err(Error::new(ErrorKind::Corrupt, "the store kept another length")
                .object(info.name)
                .expected(expected)
                .found(found));
        }
        Ok(TableDescription {
            name: self.new.name,
            offset: 0,
            length: footer.object_bytes,
            identity: self.new.identity,
            keyspace: self.new.keyspace,
            level: LEVEL_VALUES,
            first_key,
            last_key: last_key.into(),
            first_sequence: self.sequences.0,
            last_sequence: self.sequences.1,
            entries: footer.records,
            deletes: 0,
            tail_bytes: u32::try_from(VALUE_OBJECT_FOOTER_BYTES).unwrap_or(u32::MAX),
            oldest_unix_seconds: self.new.oldest_unix_seconds,
            features: self.features,
            properties: PropertyList::default(),
            source: None,
        })
    }
}

#[cfg(test)]
mod tests;
