//! Bounds-checked reading and appending of little-endian integers and length-prefixed bytes.

use crate::error::{FormatError, Result};

/// Reads from a slice; every step is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! integers {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("The next little-endian `", stringify!($type), "`.")]
        ///
        /// # Errors
        /// `Damaged` when the bytes end before.
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            Ok(<$type>::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes that remain.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// `Damaged` when the bytes end before.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        match self.bytes[self.at..].get(..count) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(FormatError::damaged(
                self.at,
                format!("{count} bytes"),
                format!("an end after {}", self.remaining()),
            )),
        }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `Damaged` when the bytes end before.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(array) => {
                self.at += N;
                Ok(*array)
            }
            None => Err(FormatError::damaged(
                self.at,
                format!("{N} bytes"),
                format!("an end after {}", self.remaining()),
            )),
        }
    }

    integers!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128);

    /// Bytes with their length (`u32`) before them.
    ///
    /// # Errors
    /// `Damaged` when the length is beyond `bytes_max` or the end.
    pub fn prefixed(&mut self, bytes_max: usize) -> Result<&'a [u8]> {
        let at = self.at;
        let length = self.u32()? as usize;
        if length > bytes_max {
            return Err(FormatError::damaged(
                at,
                format!("a length of at most {bytes_max}"),
                format!("{length}"),
            ));
        }
        self.take(length)
    }

    /// Text with its length (`u32`) before it.
    ///
    /// # Errors
    /// `Damaged` when the length is beyond `bytes_max` or the end, or the bytes are no UTF-8.
    pub fn text(&mut self, bytes_max: usize) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.prefixed(bytes_max)?)
            .map_err(|_| FormatError::damaged(at, "UTF-8 text", "other bytes"))
    }

    /// Requires that nothing remains.
    ///
    /// # Errors
    /// `Damaged` when something does.
    pub fn end(&self) -> Result<()> {
        if self.remaining() != 0 {
            return Err(FormatError::damaged(self.at, "the end", format!("{} more bytes", self.remaining())));
        }
        Ok(())
    }
}

/// Appends bytes with their length (`u32`) before them.
///
/// # Panics
/// When they are longer than `u32::MAX`: callers check limits first.
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("limits are checked before encoding");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
