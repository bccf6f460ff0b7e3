//! Tables that were made outside of a database: told by their own bytes, as no manifest does.
//!
//! Such a table has one version of each key, all under number 0: another number takes its place
//! where the table becomes part of a database.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::FormatError;
use tombolo_format::expiry::{Expiry, PROPERTY_EXPIRY};
use tombolo_format::key::{
    ENTRY_FEATURES_ENDING, ENTRY_FEATURES_OPERANDS, EntryKind, InternalKey, SequenceNumber,
};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::property::{PROPERTY_ONE_EACH, Property, PropertyList};
use tombolo_format::table::{FOOTER_BYTES, Footer, TABLE_MAGIC, TAIL_BYTES_MAX, Top, Verification};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, ObjectName, ObjectStore, Request, Result};

use super::damage::Pieces;
use super::{Step, Table};
use crate::cache::BlockCache;

/// The findings of one that was not described before.
#[derive(Debug, Default)]
struct Found {
    first: Option<Bytes>,
    last: Vec<u8>,
    features: u64,
    /// When its entries end.
    expiry: Option<Expiry>,
    /// Why it is no table from outside.
    refused: Option<&'static str>,
}

impl Found {
    fn entry(&mut self, key: InternalKey<'_>, stored: &[u8]) -> tombolo_format::Result<()> {
        let refused = if key.trailer.sequence() != SequenceNumber::ZERO {
            Some("its entries have sequence numbers of their own")
        } else if self.first.is_some() && self.last == key.user_key {
            Some("it has several versions of a key")
        } else {
            None
        };
        if refused.is_some() {
            self.refused = refused;
            return Err(FormatError::damaged(0, "a table from outside", "another one"));
        }
        self.first.get_or_insert_with(|| Bytes::copy_from_slice(key.user_key));
        self.last.clear();
        self.last.extend_from_slice(key.user_key);
        if let Some(kind) = key.trailer.kind() {
            self.features |= kind.feature();
            if let Some(one) = Expiry::of_entry(kind, stored)? {
                self.expiry = Some(self.expiry.map_or(one, |all| all.with(one)));
            }
        }
        Ok(())
    }
}

/// No table, or none from outside.
fn foreign(object: &ObjectName, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("no table that can be ingested: {why}"))
        .object(object)
        .advice("make it with TableFileBuilder, or with `tombolo db export-tables`")
}

impl Table {
    /// Describes the table from outside that `object` holds, as table `name` of a keyspace, and
    /// says for which merge operator its operands are, if it has any. Reads and checks all of it,
    /// or, with `is_trusted` and without values that end, its ends only.
    ///
    /// # Errors
    /// `Invalid` when it is no such table; `Corrupt` when it is damaged; `Unsupported` for one of a
    /// newer version; those of the store.
    pub async fn describe_outside(
        store: &Arc<dyn ObjectStore>,
        cache: &Arc<BlockCache>,
        request: Request,
        object: &ObjectName,
        (name, keyspace): (TableName, u32),
        is_trusted: bool,
    ) -> Result<(TableDescription, Option<String>)> {
        let length = store.length(request, object).await?;
        let Some(at) = length.checked_sub(FOOTER_BYTES as u64) else {
            return Err(foreign(object, format!("{length} bytes")));
        };
        let end = store.read(request, object, at..length).await?;
        if !end.ends_with(&TABLE_MAGIC) {
            return Err(foreign(object, "it does not end as a table does"));
        }
        let footer = Footer::decode(&end).map_err(|error| Error::format(object, at, error))?;
        if footer.features & EntryKind::RangeDelete.feature() != 0 {
            return Err(foreign(object, "it holds range deletes"));
        }
        if footer.table_bytes != length {
            let expected = format!("{} bytes", footer.table_bytes);
            return Err(Error::corrupt(object, at, expected, format!("{length} bytes")));
        }
        let tail = |from: u64| u32::try_from(length - from).unwrap_or(u32::MAX);
        let whole = tail(footer.data_end);
        let description = TableDescription {
            name,
            offset: 0,
            length,
            identity: footer.identity,
            keyspace,
            level: 0,
            first_key: Bytes::new(),
            last_key: Bytes::new(),
            first_sequence: SequenceNumber::ZERO,
            last_sequence: SequenceNumber::ZERO,
            entries: 0,
            deletes: 0,
            tail_bytes: if whole <= TAIL_BYTES_MAX { whole } else { tail(footer.top_index.offset) },
            oldest_unix_seconds: 0,
            features: footer.features,
            properties: PropertyList::default(),
            source: None,
        };
        let table = Table::new(description, object.clone(), Arc::clone(store), Arc::clone(cache));
        let (tail, at, top, _charge) = table.tail(request).await?;
        let mut found = Found::default();
        // Its ends do not say when its values end, which decides when it may go.
        let ends = footer.features & ENTRY_FEATURES_ENDING != 0;
        let is_trusted = is_trusted && (!ends || is_enabled(Mutant::TrustedEndsUnread));
        let looked = if is_trusted {
            Arc::new(table).look_at_ends(request, &mut found).await
        } else {
            table.look_at_all(request, (&tail, at, &top), &mut found).await
        };
        if let Some(why) = found.refused {
            return Err(foreign(object, why));
        }
        let table = looked?;
        let Some(first_key) = found.first else { return Err(foreign(object, "it is empty")) };
        if !is_trusted && found.features != footer.features {
            let expected = format!("feature bits {:#x}, of its entries", found.features);
            return Err(Error::corrupt(object, at, expected, format!("{:#x}", footer.features)));
        }
        let properties = top.properties;
        let has_operands = footer.features & ENTRY_FEATURES_OPERANDS != 0;
        if has_operands && properties.operator.is_empty() {
            return Err(foreign(object, "it does not say for which merge operator its operands are"));
        }
        // One version of each key, as was looked at, or trusted.
        let is_one_each = properties.values == properties.entries && top.ranges.is_empty();
        let one_each = Property { id: PROPERTY_ONE_EACH, is_critical: false, value: &[] };
        let one_each = is_one_each.then_some(one_each);
        let operator = has_operands.then_some(properties.operator);
        let expiry = found.expiry.map(Expiry::encode);
        let expiry = expiry.as_ref().map(|value| Property { id: PROPERTY_EXPIRY, is_critical: true, value });
        let description = TableDescription {
            properties: PropertyList::of(expiry.into_iter().chain(one_each)),
            first_key,
            last_key: found.last.into(),
            entries: properties.entries,
            deletes: properties.deletes,
            oldest_unix_seconds: properties.oldest_unix_seconds,
            ..table
        };
        Ok((description, operator))
    }

    /// Checks every byte.
    async fn look_at_all(
        &self,
        request: Request,
        (tail, at, top): (&Bytes, u64, &Top),
        found: &mut Found,
    ) -> Result<TableDescription> {
        let mut verification = Verification::new(tail, at, top).map_err(|error| self.damaged(error))?;
        let mut pieces = Pieces::new(self, request);
        while let Some(handle) = verification.next_block().map_err(|error| self.damaged(error))? {
            let (piece, offset) = pieces.around(handle, top.footer.data_end).await?;
            let _decoded = self.charge_decoded(piece, offset, handle);
            verification
                .take(handle, piece, offset, |key, stored| found.entry(key, stored))
                .map_err(|error| self.damaged(error))?;
        }
        Ok(self.description.clone())
    }

    /// Looks at the first entry and at the last one.
    async fn look_at_ends(self: Arc<Self>, request: Request, found: &mut Found) -> Result<TableDescription> {
        let mut iterator = self.iterator(request, false);
        for is_last in [false, true] {
            let step = if is_last { iterator.last() } else { iterator.first() };
            if step? == Step::Blocked {
                iterator.load().await?;
            }
            if iterator.valid() && !(is_last && iterator.key().user_key == &found.last[..]) {
                found.entry(iterator.key(), iterator.value()).map_err(|error| self.damaged(error))?;
            }
        }
        Ok(self.description.clone())
    }
}
