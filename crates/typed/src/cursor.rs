//! A cursor by types.

use std::fmt;
use std::marker::PhantomData;

use tombolo::{Cursor, Error, ErrorKind, Result};
use tombolo_format::typed_key::KeyDecoder;

use crate::keyspace::Named;
use crate::prefix::{after, bytes_of};
use crate::{Check, Key, PrefixOf, Value, View};

/// A cursor over the entries of a typed keyspace, at one moment. It lends values out of the cache;
/// [`TypedCursor::key`] makes the key that it stands at.
///
/// As [`Cursor`] it begins before all entries, and moves wait for what memory does not hold.
pub struct TypedCursor<K, V: ?Sized> {
    cursor: Cursor,
    named: Named<V>,
    of: PhantomData<fn(K) -> K>,
}

impl<K, V: ?Sized> fmt::Debug for TypedCursor<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TypedCursor").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> TypedCursor<K, V> {
    pub(crate) fn new(cursor: Cursor, named: Named<V>) -> TypedCursor<K, V> {
        TypedCursor { cursor, named, of: PhantomData }
    }

    /// The cursor by bytes. As another one may be put in its place, values are checked with each
    /// read from here on, also where [`Check::once_a_block`] was asked for.
    pub fn cursor(&mut self) -> &mut Cursor {
        self.named.check = Check::each_read();
        &mut self.cursor
    }

    /// Whether it stands at an entry.
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The key at which it stands.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no key of the type, and at no entry.
    pub fn key(&self) -> Result<K> {
        let bytes = self.cursor.key();
        K::from_key(bytes).map_err(|error| self.named.no_key(bytes, &error))
    }

    /// Its bytes; empty at no entry.
    pub fn key_bytes(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The first fields of the key at which it stands: the others are not read.
    ///
    /// # Errors
    /// As [`TypedCursor::key`].
    pub fn key_prefix<P: PrefixOf<K>>(&self) -> Result<P> {
        let bytes = self.cursor.key();
        P::decode_prefix(&mut KeyDecoder::new(bytes)).map_err(|error| self.named.no_key(bytes, &error))
    }

    /// The value at which it stands, in place.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no value of the type; `Invalid` at no entry.
    pub fn value(&self) -> Result<View<'_, V>> {
        // What lies at no entry was never written, and must not be trusted.
        if !self.cursor.valid() {
            return Err(Error::new(ErrorKind::Invalid, "the cursor stands at no entry, which has no value")
                .advice("move it first, and look whether it found an entry"));
        }
        let bytes = self.cursor.value();
        self.named.check.view(bytes).map_err(|error| self.named.no_value(self.cursor.key(), &error))
    }

    /// To the next entry; says whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    #[allow(clippy::should_implement_trait, reason = "it lends its entries, which an iterator cannot")]
    pub fn next(&mut self) -> Result<bool> {
        self.cursor.next()
    }

    /// To the entry before; says whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::prev`].
    pub fn prev(&mut self) -> Result<bool> {
        self.cursor.prev()
    }

    /// To the first entry whose key begins with `prefix`, or comes after all that do.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn seek<P: PrefixOf<K>>(&mut self, prefix: &P) -> Result<bool> {
        self.cursor.seek(bytes_of(prefix))
    }

    /// To the last entry whose key begins with `prefix`, or comes before all that do.
    ///
    /// # Errors
    /// As [`Cursor::seek_for_prev`].
    pub fn seek_for_prev<P: PrefixOf<K>>(&mut self, prefix: &P) -> Result<bool> {
        match after(bytes_of(prefix)) {
            None => self.cursor.seek_to_last(),
            // The end itself begins otherwise.
            Some(end) => {
                let found = self.cursor.seek_for_prev(&end)?;
                if found && self.cursor.key() == end { self.cursor.prev() } else { Ok(found) }
            }
        }
    }

    /// As [`Cursor::advance_to`]: to the first entry at or after `prefix`, never back.
    ///
    /// # Errors
    /// As there.
    pub fn advance_to<P: PrefixOf<K>>(&mut self, prefix: &P) -> Result<bool> {
        self.cursor.advance_to(bytes_of(prefix))
    }

    /// To the next entry that is `wanted`; values that are none of the type are passed over as not
    /// wanted.
    ///
    /// # Errors
    /// As [`Cursor::find_next`].
    pub fn find_next(&mut self, mut wanted: impl FnMut(&[u8], View<'_, V>) -> bool) -> Result<bool> {
        let check = self.named.check;
        self.cursor.find_next(|key, value| check.view(value).is_ok_and(|value| wanted(key, value)))
    }

    /// As [`TypedCursor::find_next`], back.
    ///
    /// # Errors
    /// As there.
    pub fn find_prev(&mut self, mut wanted: impl FnMut(&[u8], View<'_, V>) -> bool) -> Result<bool> {
        let check = self.named.check;
        self.cursor.find_prev(|key, value| check.view(value).is_ok_and(|value| wanted(key, value)))
    }

    /// To the first entry of the next group: of those that begin with another `P` than the entry at
    /// which it stands. Entries between are not read. From no entry, to the next one.
    ///
    /// ```no_run
    /// # use tombolo_typed::TypedKeyspace;
    /// # fn f(bids: &TypedKeyspace<(u64, u64), u64>) -> tombolo::Result<()> {
    /// // The first bid of each auction.
    /// let mut cursor = bids.all();
    /// while cursor.next_group::<(u64,)>()? {
    ///     println!("{:?}: {}", cursor.key()?, cursor.value()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TypedCursor::key`] and [`TypedCursor::seek`].
    pub fn next_group<P: PrefixOf<K>>(&mut self) -> Result<bool> {
        let Some(group) = self.group::<P>()? else { return self.cursor.next() };
        match after(group) {
            Some(next) => self.cursor.advance_to(next),
            None => self.cursor.seek_to_last().and_then(|_| self.cursor.next()),
        }
    }

    /// To the next entry of the same group; `false` at its last, where it stays.
    ///
    /// # Errors
    /// As [`TypedCursor::next_group`].
    pub fn next_in_group<P: PrefixOf<K>>(&mut self) -> Result<bool> {
        let Some(group) = self.group::<P>()? else { return Ok(false) };
        if self.cursor.next()? && self.cursor.key().starts_with(&group) {
            return Ok(true);
        }
        self.cursor.prev()?;
        Ok(false)
    }

    /// The bytes of the group at which it stands.
    fn group<P: PrefixOf<K>>(&self) -> Result<Option<Vec<u8>>> {
        if !self.cursor.valid() {
            return Ok(None);
        }
        let bytes = self.cursor.key();
        let mut decoder = KeyDecoder::new(bytes);
        P::decode_prefix(&mut decoder).map_err(|error| self.named.no_key(bytes, &error))?;
        Ok(bytes.get(..decoder.position()).map(<[u8]>::to_vec))
    }

    /// Looks many keys up in one walk: see [`Cursor::look_up`]. `found` is given the number of each
    /// key and its value, in place.
    ///
    /// # Errors
    /// As there; `Corrupt` for bytes that are no value of the type.
    pub fn look_up<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k K>,
        mut found: impl FnMut(usize, Option<View<'_, V>>),
    ) -> Result<()>
    where
        K: 'k,
    {
        let (check, mut wrong) = (self.named.check, None);
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.to_key().bytes().to_vec()).collect();
        self.cursor.look_up(&keys, |number, value| {
            match value.map(|value| check.view(value)).transpose() {
                Ok(value) if wrong.is_none() => found(number, value),
                Ok(_) => {}
                Err(error) => {
                    wrong.get_or_insert((number, error));
                }
            }
        })?;
        match wrong {
            None => Ok(()),
            Some((number, error)) => Err(self.named.no_value(&keys[number], &error)),
        }
    }
}
