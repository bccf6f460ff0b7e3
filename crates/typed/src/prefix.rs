//! Beginnings of keys, for scans of ranges.

use std::ops::{Bound, RangeBounds};

use tombolo_format::key::KEY_BYTES_MAX;
use tombolo_format::typed_key::{KeyDecoder, KeyEncoder, KeyError};

use crate::Key;

/// A type whose bytes are the beginning of a key's: its first fields, or the key itself.
///
/// `#[key(prefix(OfCustomer(customer)))]` beside `derive(Key)` makes such a type of the first
/// fields. Of a tuple, shorter tuples are prefixes.
pub trait PrefixOf<K: Key> {
    /// Adds its bytes.
    fn encode_prefix(&self, key: &mut KeyEncoder);

    /// Reads it at the beginning of a key.
    ///
    /// # Errors
    /// As [`Key::decode`].
    fn decode_prefix(key: &mut KeyDecoder<'_>) -> Result<Self, KeyError>
    where
        Self: Sized;
}

impl<K: Key> PrefixOf<K> for K {
    fn encode_prefix(&self, key: &mut KeyEncoder) {
        self.encode(key);
    }

    fn decode_prefix(key: &mut KeyDecoder<'_>) -> Result<K, KeyError> {
        K::decode(key)
    }
}

/// The beginning of a text: of all texts that begin so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StartsWith<T>(pub T);

impl<T: AsRef<str>> PrefixOf<String> for StartsWith<T> {
    fn encode_prefix(&self, key: &mut KeyEncoder) {
        key.escaped_beginning(self.0.as_ref().as_bytes());
    }

    /// No text says where its beginning ends.
    fn decode_prefix(key: &mut KeyDecoder<'_>) -> Result<Self, KeyError> {
        Err(key.expected("a whole field"))
    }
}

macro_rules! tuples {
    ($(($($name:ident $field:tt),+) of ($($more:ident),+);)*) => {$(
        impl<$($name: Key,)+ $($more: Key),+> PrefixOf<($($name,)+ $($more,)+)> for ($($name,)+) {
            fn encode_prefix(&self, key: &mut KeyEncoder) {
                $(self.$field.encode(key);)+
            }

            fn decode_prefix(key: &mut KeyDecoder<'_>) -> Result<Self, KeyError> {
                Ok(($($name::decode(key)?,)+))
            }
        }
    )*};
}

tuples! {
    (A 0) of (B);
    (A 0) of (B, C);
    (A 0) of (B, C, D);
    (A 0) of (B, C, D, E);
    (A 0) of (B, C, D, E, F);
    (A 0, B 1) of (C);
    (A 0, B 1) of (C, D);
    (A 0, B 1) of (C, D, E);
    (A 0, B 1) of (C, D, E, F);
    (A 0, B 1, C 2) of (D);
    (A 0, B 1, C 2) of (D, E);
    (A 0, B 1, C 2) of (D, E, F);
    (A 0, B 1, C 2, D 3) of (E);
    (A 0, B 1, C 2, D 3) of (E, F);
    (A 0, B 1, C 2, D 3, E 4) of (F);
}

/// A range of keys, as the engine takes it.
pub(crate) type ByteRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bytes of a prefix.
pub(crate) fn bytes_of<K: Key, P: PrefixOf<K>>(prefix: &P) -> Vec<u8> {
    let mut encoder = KeyEncoder::new();
    prefix.encode_prefix(&mut encoder);
    encoder.bytes().to_vec()
}

/// The least bytes after all that begin with `prefix`; `None` when there are none.
pub(crate) fn after(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    prefix.truncate(at + 1);
    prefix[at] += 1;
    Some(prefix)
}

/// All keys that begin with `prefix`.
pub(crate) fn under<K: Key, P: PrefixOf<K>>(prefix: &P) -> ByteRange {
    let bytes = bytes_of(prefix);
    (Bound::Included(bytes.clone()), after(bytes).map_or(Bound::Unbounded, Bound::Excluded))
}

/// All keys of a range whose ends are prefixes: an included end takes all that begin with it, and
/// an excluded one none of them.
pub(crate) fn between<K: Key, P: PrefixOf<K>>(range: &impl RangeBounds<P>) -> ByteRange {
    let from = match range.start_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(prefix) => Bound::Included(bytes_of(prefix)),
        // Beyond the greatest of all keys there is none.
        Bound::Excluded(prefix) => after(bytes_of(prefix))
            .map_or_else(|| Bound::Excluded(vec![u8::MAX; KEY_BYTES_MAX]), Bound::Included),
    };
    let to = match range.end_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(prefix) => after(bytes_of(prefix)).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Excluded(prefix) => Bound::Excluded(bytes_of(prefix)),
    };
    (from, to)
}
