//! Types that are keys.
//!
//! The bytes are those of [`tombolo_format::typed_key`].

use std::cmp::{Ordering, Reverse};

use bytes::Bytes;
use tombolo_format::typed_key::{KeyDecoder, KeyEncoder, KeyError};

use crate::Describe;

#[cfg(test)]
mod tests;

/// A type whose encoding has the order of its values: derive it.
///
/// Numbers, truths, characters, `String`, `Vec<u8>`, options, arrays, tuples, structures of these,
/// and enumerations whose variants have fields of these. [`Reverse`] turns the order round, and
/// [`NullsLast`] has nothing after everything. Floating-point numbers are in the order of
/// `total_cmp`.
///
/// ```
/// use tombolo_typed::Key;
///
/// #[derive(Key)]
/// enum Event {
///     Begun,
///     Moved { by: i64 },
///     #[key(number = 9)]
///     Ended(String),
/// }
/// ```
///
/// Variants are in the order in which they are declared, from number 0 on; `#[key(number = 9)]`
/// gives one a number of its own, so that others may come between later. Numbers must rise.
pub trait Key: Describe + Sized + 'static {
    /// Adds its bytes.
    fn encode(&self, key: &mut KeyEncoder);

    /// Reads its bytes.
    ///
    /// # Errors
    /// For what [`Key::encode`] does not write.
    fn decode(key: &mut KeyDecoder<'_>) -> Result<Self, KeyError>;

    /// The whole key.
    fn to_key(&self) -> KeyEncoder {
        let mut encoder = KeyEncoder::new();
        self.encode(&mut encoder);
        encoder
    }

    /// Of a whole key.
    ///
    /// # Errors
    /// As [`Key::decode`]; when something follows.
    fn from_key(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut decoder = KeyDecoder::new(bytes);
        let key = Self::decode(&mut decoder)?;
        decoder.end()?;
        Ok(key)
    }
}

macro_rules! numbers {
    ($($type:ident, $put:ident;)*) => {$(
        impl Key for $type {
            #[inline]
            fn encode(&self, key: &mut KeyEncoder) {
                key.$put(*self);
            }

            #[inline]
            fn decode(key: &mut KeyDecoder<'_>) -> Result<$type, KeyError> {
                key.$type()
            }
        }
    )*};
}

numbers! {
    u8, put_u8;
    u16, put_u16;
    u32, put_u32;
    u64, put_u64;
    u128, put_u128;
    i8, put_i8;
    i16, put_i16;
    i32, put_i32;
    i64, put_i64;
    i128, put_i128;
    f32, put_f32;
    f64, put_f64;
    bool, put_bool;
    char, put_char;
}

impl Key for String {
    fn encode(&self, key: &mut KeyEncoder) {
        key.escaped(self.as_bytes());
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<String, KeyError> {
        key.text()
    }
}

impl Key for Vec<u8> {
    fn encode(&self, key: &mut KeyEncoder) {
        key.escaped(self);
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<Vec<u8>, KeyError> {
        key.escaped()
    }
}

impl Key for Bytes {
    fn encode(&self, key: &mut KeyEncoder) {
        key.escaped(self);
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<Bytes, KeyError> {
        key.escaped().map(Bytes::from)
    }
}

impl Key for () {
    fn encode(&self, _key: &mut KeyEncoder) {}

    fn decode(_key: &mut KeyDecoder<'_>) -> Result<(), KeyError> {
        Ok(())
    }
}

/// Nothing comes before everything, as in Rust's own order.
impl<T: Key> Key for Option<T> {
    fn encode(&self, key: &mut KeyEncoder) {
        match self {
            None => key.put_u8(0),
            Some(value) => {
                key.put_u8(1);
                value.encode(key);
            }
        }
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<Option<T>, KeyError> {
        match key.one_of(&[0, 1], "0 or 1, which say whether there is a value")? {
            0 => Ok(None),
            _ => T::decode(key).map(Some),
        }
    }
}

/// An option of which nothing comes after everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NullsLast<T>(pub Option<T>);

impl<T: PartialOrd> PartialOrd for NullsLast<T> {
    fn partial_cmp(&self, other: &NullsLast<T>) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => one.partial_cmp(other),
            (one, other) => Some(one.is_none().cmp(&other.is_none())),
        }
    }
}

impl<T: Ord> Ord for NullsLast<T> {
    fn cmp(&self, other: &NullsLast<T>) -> Ordering {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => one.cmp(other),
            (one, other) => one.is_none().cmp(&other.is_none()),
        }
    }
}

impl<T: Key> Key for NullsLast<T> {
    fn encode(&self, key: &mut KeyEncoder) {
        match &self.0 {
            None => key.put_u8(2),
            Some(value) => {
                key.put_u8(1);
                value.encode(key);
            }
        }
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<NullsLast<T>, KeyError> {
        match key.one_of(&[1, 2], "1 or 2, which say whether there is a value")? {
            1 => T::decode(key).map(|value| NullsLast(Some(value))),
            _ => Ok(NullsLast(None)),
        }
    }
}

impl<T: Key> Key for Reverse<T> {
    fn encode(&self, key: &mut KeyEncoder) {
        let start = key.len();
        self.0.encode(key);
        key.invert_from(start);
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<Reverse<T>, KeyError> {
        key.reversed(T::decode).map(Reverse)
    }
}

impl<T: Key, const N: usize> Key for [T; N] {
    fn encode(&self, key: &mut KeyEncoder) {
        self.iter().for_each(|value| value.encode(key));
    }

    fn decode(key: &mut KeyDecoder<'_>) -> Result<[T; N], KeyError> {
        let mut values = Vec::with_capacity(N.min(1 << 16));
        for _ in 0..N {
            values.push(T::decode(key)?);
        }
        values.try_into().map_err(|_| key.expected("an array"))
    }
}

macro_rules! tuples {
    ($(($($name:ident $field:tt),+);)*) => {$(
        impl<$($name: Key),+> Key for ($($name,)+) {
            fn encode(&self, key: &mut KeyEncoder) {
                $(self.$field.encode(key);)+
            }

            fn decode(key: &mut KeyDecoder<'_>) -> Result<Self, KeyError> {
                Ok(($($name::decode(key)?,)+))
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}
