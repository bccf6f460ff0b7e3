//! Typed keys: values of a program's types as bytes whose order is the order of the values.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned number of n bytes | n, big-endian |
//! | signed number of n bytes | n, big-endian, the sign bit inverted |
//! | floating-point number | n, big-endian: all bits inverted if the sign bit is set, else the sign bit alone; the order is that of `total_cmp` |
//! | truth | 1: 0 or 1 |
//! | character | 4, big-endian: its Unicode scalar value |
//! | text, bytes | each byte as it is, 0 as `00 FF`; then `00 01` |
//! | option, nothing first | `00`; or `01` and the value |
//! | option, nothing last | `01` and the value; or `02` |
//! | variant of an enumeration | 1: its number; then its fields |
//! | array, tuple, structure | one element or field after the other |
//! | reversed | the bytes of the value, all bits inverted |
//!
//! No encoding is the beginning of another one of the same type. So any field may follow any other,
//! and reversing inverts bytes and nothing more. Every value has one encoding: a decoder refuses
//! all others.

use std::fmt;

/// Keys up to this size are encoded without an allocation.
pub const INLINE_BYTES: usize = 120;

const ZERO: u8 = 0x00;
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x01;

/// Encodes a key, field by field.
#[derive(Clone)]
pub struct KeyEncoder {
    inline: [u8; INLINE_BYTES],
    /// Bytes in `inline`, while `spilled` is empty.
    length: usize,
    spilled: Vec<u8>,
}

impl Default for KeyEncoder {
    fn default() -> KeyEncoder {
        KeyEncoder::new()
    }
}

impl fmt::Debug for KeyEncoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KeyEncoder").field(&self.bytes()).finish()
    }
}

impl KeyEncoder {
    /// An empty one.
    #[inline]
    pub fn new() -> KeyEncoder {
        KeyEncoder { inline: [0; INLINE_BYTES], length: 0, spilled: Vec::new() }
    }

    /// The bytes so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() {
            self.inline.get(..self.length).unwrap_or_default()
        } else {
            &self.spilled
        }
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
        self.spilled.clear();
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        if self.spilled.is_empty() { self.length } else { self.spilled.len() }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if self.spilled.is_empty()
            && let Some(room) = self.inline.get_mut(self.length..end)
        {
            room.copy_from_slice(bytes);
            self.length = end;
            return;
        }
        self.spill(bytes);
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(self.inline.get(..self.length).unwrap_or_default());
        }
        self.spilled.extend_from_slice(bytes);
    }

    /// Text or bytes: escaped, and ended.
    pub fn escaped(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == ZERO);
        if let Some(first) = parts.next() {
            self.raw(first);
        }
        for part in parts {
            self.raw(&[ZERO, ESCAPED]);
            self.raw(part);
        }
        self.raw(&[ZERO, END]);
    }

    /// The beginning of text or bytes: all of which begin so come after it, and have it as a
    /// prefix.
    pub fn escaped_beginning(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == ZERO);
        if let Some(first) = parts.next() {
            self.raw(first);
        }
        for part in parts {
            self.raw(&[ZERO, ESCAPED]);
            self.raw(part);
        }
    }

    /// Inverts all bytes from `start` on, so that what they stand for is reversed.
    pub fn invert_from(&mut self, start: usize) {
        let bytes =
            if self.spilled.is_empty() { &mut self.inline[..self.length] } else { &mut self.spilled[..] };
        bytes.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
}

/// Why bytes are no key of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Where in the key.
    pub at: usize,
    /// The thing that belongs there.
    pub expected: &'static str,
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is expected at byte {} of the key", self.expected, self.at)
    }
}

impl std::error::Error for KeyError {}

/// Decodes a key, field by field.
#[derive(Clone, Debug)]
pub struct KeyDecoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes are combined with it: all ones within a reversed field.
    mask: u8,
}

impl<'a> KeyDecoder<'a> {
    /// Of these bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> KeyDecoder<'a> {
        KeyDecoder { bytes, at: 0, mask: 0 }
    }

    /// How many bytes were read.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// An error at this place.
    #[cold]
    pub fn expected(&self, expected: &'static str) -> KeyError {
        KeyError { at: self.at, expected }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let Some(found) = found else { return Err(self.expected("more bytes")) };
        self.at += N;
        let mut found = *found;
        if self.mask != 0 {
            found.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(found)
    }

    /// The next byte.
    ///
    /// # Errors
    /// When there is none.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, KeyError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// One byte, which says which of several things follows.
    ///
    /// # Errors
    /// `expected`, when it is none of `all`.
    #[inline]
    pub fn one_of(&mut self, all: &[u8], expected: &'static str) -> Result<u8, KeyError> {
        let at = self.at;
        let byte = self.byte()?;
        if all.contains(&byte) { Ok(byte) } else { Err(KeyError { at, expected }) }
    }

    /// What [`KeyEncoder::escaped`] wrote.
    ///
    /// # Errors
    /// Without an end, or with an escape that is none.
    pub fn escaped(&mut self) -> Result<Vec<u8>, KeyError> {
        let mut found = Vec::new();
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(run) = rest.iter().position(|byte| *byte == ZERO ^ self.mask) else {
                return Err(self.expected("an end of text or bytes"));
            };
            let (run, _) = rest.split_at(run);
            let begun = found.len();
            found.extend_from_slice(run);
            if self.mask != 0 {
                found.iter_mut().skip(begun).for_each(|byte| *byte = !*byte);
            }
            self.at += run.len() + 1;
            match self.one_of(&[ESCAPED, END], "the end of text or bytes, or an escaped zero")? {
                END => return Ok(found),
                _ => found.push(ZERO),
            }
        }
    }

    /// Passes over what [`KeyEncoder::escaped`] wrote.
    ///
    /// # Errors
    /// As [`KeyDecoder::escaped`].
    pub fn skip_escaped(&mut self) -> Result<(), KeyError> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(run) = rest.iter().position(|byte| *byte == ZERO ^ self.mask) else {
                return Err(self.expected("an end of text or bytes"));
            };
            self.at += run + 1;
            if self.one_of(&[ESCAPED, END], "the end of text or bytes, or an escaped zero")? == END {
                return Ok(());
            }
        }
    }

    /// Reads something that is reversed.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn reversed<T>(
        &mut self,
        read: impl FnOnce(&mut KeyDecoder<'a>) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        self.mask = !self.mask;
        let found = read(self);
        self.mask = !self.mask;
        found
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// When something does.
    pub fn end(&self) -> Result<(), KeyError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.expected("the end")) }
    }
}

macro_rules! unsigned {
    ($($type:ty, $put:ident, $get:ident;)*) => {
        impl KeyEncoder {$(
            #[doc = concat!("A number of type ", stringify!($type), ".")]
            #[inline]
            pub fn $put(&mut self, value: $type) {
                self.raw(&value.to_be_bytes());
            }
        )*}
        impl KeyDecoder<'_> {$(
            #[doc = concat!("A number of type ", stringify!($type), ".")]
            ///
            /// # Errors
            /// When the key ends before.
            #[inline]
            pub fn $get(&mut self) -> Result<$type, KeyError> {
                self.array().map(<$type>::from_be_bytes)
            }
        )*}
    };
}

unsigned! {
    u8, put_u8, u8;
    u16, put_u16, u16;
    u32, put_u32, u32;
    u64, put_u64, u64;
    u128, put_u128, u128;
}

macro_rules! signed {
    ($($type:ty, $put:ident, $get:ident;)*) => {
        impl KeyEncoder {$(
            #[doc = concat!("A number of type ", stringify!($type), ".")]
            #[inline]
            pub fn $put(&mut self, value: $type) {
                self.raw(&(value ^ <$type>::MIN).to_be_bytes());
            }
        )*}
        impl KeyDecoder<'_> {$(
            #[doc = concat!("A number of type ", stringify!($type), ".")]
            ///
            /// # Errors
            /// When the key ends before.
            #[inline]
            pub fn $get(&mut self) -> Result<$type, KeyError> {
                self.array().map(|bytes| <$type>::from_be_bytes(bytes) ^ <$type>::MIN)
            }
        )*}
    };
}

signed! {
    i8, put_i8, i8;
    i16, put_i16, i16;
    i32, put_i32, i32;
    i64, put_i64, i64;
    i128, put_i128, i128;
}

macro_rules! floating {
    ($($type:ty, $bits:ty, $put:ident, $get:ident;)*) => {
        impl KeyEncoder {$(
            #[doc = concat!("A number of type ", stringify!($type), ", in the order of `total_cmp`.")]
            #[inline]
            pub fn $put(&mut self, value: $type) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = value.to_bits();
                self.raw(&(if bits & SIGN == 0 { bits ^ SIGN } else { !bits }).to_be_bytes());
            }
        )*}
        impl KeyDecoder<'_> {$(
            #[doc = concat!("A number of type ", stringify!($type), ".")]
            ///
            /// # Errors
            /// When the key ends before.
            #[inline]
            pub fn $get(&mut self) -> Result<$type, KeyError> {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.array().map(<$bits>::from_be_bytes)?;
                Ok(<$type>::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN }))
            }
        )*}
    };
}

floating! {
    f32, u32, put_f32, f32;
    f64, u64, put_f64, f64;
}

impl KeyEncoder {
    /// A truth.
    #[inline]
    pub fn put_bool(&mut self, value: bool) {
        self.raw(&[u8::from(value)]);
    }

    /// A character.
    #[inline]
    pub fn put_char(&mut self, value: char) {
        self.put_u32(u32::from(value));
    }
}

impl KeyDecoder<'_> {
    /// A truth.
    ///
    /// # Errors
    /// For anything but 0 and 1.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, KeyError> {
        self.one_of(&[0, 1], "0 or 1").map(|byte| byte == 1)
    }

    /// A character.
    ///
    /// # Errors
    /// For anything but a Unicode scalar value.
    #[inline]
    pub fn char(&mut self) -> Result<char, KeyError> {
        let at = self.at;
        char::from_u32(self.u32()?).ok_or(KeyError { at, expected: "a Unicode scalar value" })
    }

    /// Text.
    ///
    /// # Errors
    /// As [`KeyDecoder::escaped`]; for bytes that are no UTF-8.
    pub fn text(&mut self) -> Result<String, KeyError> {
        let at = self.at;
        String::from_utf8(self.escaped()?).map_err(|_| KeyError { at, expected: "text in UTF-8" })
    }
}

#[cfg(test)]
mod tests;
