//! A version of a key in the arena, written once.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | trailer: sequence number and kind |
//! | 8 | 4 | value bytes |
//! | 12 | 2 | key bytes |
//! | 14 | | key, then value |
//!
//! Order: user keys ascending, of one key the newest first.

use std::cmp::Ordering as Order;
use std::ptr::NonNull;

use tombolo_format::key::Trailer;

use super::arena::{ALIGN, Bump};

const VALUE_BYTES_AT: usize = 8;
const KEY_BYTES_AT: usize = 12;
const KEY_AT: usize = 14;

/// A version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The user's key.
    pub(crate) key: &'a [u8],
    /// Its sequence number and kind.
    pub(crate) trailer: Trailer,
    /// The value; empty for deletes.
    pub(crate) value: &'a [u8],
}

/// The target of a search: a place in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) key: &'a [u8],
    pub(super) trailer: Trailer,
}

impl Target<'_> {
    /// How a version with this key and trailer lies to the target.
    #[inline]
    pub(super) fn order_of(&self, key: &[u8], trailer: Trailer) -> Order {
        key.cmp(self.key).then_with(|| self.trailer.cmp(&trailer))
    }
}

/// A version in some arena.
///
/// Invariant: a complete record in an arena that outlives every use; so a holder of one must hold
/// its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(NonNull<u8>);

impl Record {
    /// Bytes that a record takes in the arena.
    #[inline]
    pub(super) fn bytes(key_bytes: usize, value_bytes: usize) -> usize {
        (KEY_AT + key_bytes + value_bytes).next_multiple_of(ALIGN)
    }

    /// Writes a record. Its [`Record::bytes`] were reserved.
    #[inline]
    pub(super) fn write(bump: &mut Bump, target: &Target<'_>, value: &[u8]) -> Record {
        let (Ok(key_bytes), Ok(value_bytes)) = (u16::try_from(target.key.len()), u32::try_from(value.len()))
        else {
            unreachable!("limits are checked before the memtable");
        };
        let place = bump.allocate(Record::bytes(target.key.len(), value.len()));
        // SAFETY: the allocation is fresh, 8-byte aligned and holds header, key and value; all
        // writes stay within it, at offsets that are multiples of the fields' sizes.
        unsafe {
            place.cast::<u64>().write(target.trailer.0);
            place.add(VALUE_BYTES_AT).cast::<u32>().write(value_bytes);
            place.add(KEY_BYTES_AT).cast::<u16>().write(key_bytes);
            place.add(KEY_AT).copy_from_nonoverlapping(NonNull::from(target.key).cast(), target.key.len());
            place
                .add(KEY_AT + target.key.len())
                .copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        Record(place)
    }

    /// As a word for a leaf, and back by [`Record::from_pointer`].
    #[inline]
    pub(super) fn pointer(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The record that [`Record::pointer`] gave.
    #[inline]
    pub(super) fn from_pointer(pointer: NonNull<u8>) -> Record {
        Record(pointer)
    }

    /// Key, trailer and value.
    ///
    /// # Safety
    /// The caller holds the record's list as long as `'a`.
    #[inline]
    pub(super) unsafe fn entry<'a>(self) -> Entry<'a> {
        // SAFETY: a complete record begins with 14 initialised bytes, and after them lie
        // `key_bytes + value_bytes` more; none of them ever changes, and the list keeps them.
        unsafe {
            let trailer = Trailer(self.0.cast::<u64>().read());
            let value_bytes = self.0.add(VALUE_BYTES_AT).cast::<u32>().read() as usize;
            let key_bytes = self.0.add(KEY_BYTES_AT).cast::<u16>().read() as usize;
            let key_at = self.0.add(KEY_AT);
            let key = std::slice::from_raw_parts(key_at.as_ptr(), key_bytes);
            let value = std::slice::from_raw_parts(key_at.add(key_bytes).as_ptr(), value_bytes);
            Entry { key, trailer, value }
        }
    }

    /// How it lies to `target`. The caller holds the record's list.
    #[inline]
    pub(super) fn compare(self, target: &Target<'_>) -> Order {
        // SAFETY: the borrow ends with this function, whose caller holds the list.
        let entry = unsafe { self.entry() };
        target.order_of(entry.key, entry.trailer)
    }
}
