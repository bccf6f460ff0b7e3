//! Types that are values, read where they lie.
//!
//! A read is given bytes of the cache, and makes a view of them. A [`Form`] says how: the plain one
//! of numbers and texts, zerocopy's of structures that are their own bytes, rkyv's of any shape.
//!
//! Invariants:
//! 1. No view is given of bytes that lie wrongly for it, or that no value of the type has.
//! 2. A [`Lent`] was checked when it was made; its bytes do not move, and nobody changes them.

use std::fmt;
use std::marker::PhantomData;

use tombolo_format::aligned::is_aligned;

use crate::Describe;

mod plain;
#[cfg(feature = "rkyv")]
mod rkyv;
#[cfg(test)]
mod tests;
#[cfg(feature = "zerocopy")]
mod zerocopy;

#[cfg(feature = "rkyv")]
pub use self::rkyv::Rkyv;
#[cfg(feature = "zerocopy")]
pub use self::zerocopy::Zerocopy;
pub use plain::Plain;

/// A type of values.
///
/// Numbers, `String`, `Vec<u8>` and `()` are; of others derive it beside what its form needs:
/// `#[value(zerocopy)]` or `#[value(rkyv)]`.
pub trait Value: Describe + 'static {
    /// How it lies in bytes.
    type Form: Form<Self>;
}

/// What a read lends of a value of type `V`.
pub type View<'a, V> = <<V as Value>::Form as Form<V>>::View<'a>;

/// How values of type `V` lie in bytes.
pub trait Form<V: ?Sized + 'static> {
    /// What a read lends.
    type View<'a>;

    /// Where bytes must begin for a view of them: at multiples of it.
    const ALIGNMENT: usize;

    /// Gives the value's bytes to `take`.
    ///
    /// # Errors
    /// For a value that has no bytes in this form.
    fn write<R>(value: &V, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError>;

    /// The value in these bytes, which lie right for it. All is checked that reading it relies on.
    ///
    /// # Errors
    /// For bytes that are no value of the type.
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, ValueError>;

    /// As [`Form::view`], of bytes that were checked before.
    ///
    /// # Errors
    /// As there, where the check costs nothing.
    ///
    /// # Safety
    /// [`Form::view`] has no error for these bytes where they lie.
    unsafe fn view_again(bytes: &[u8]) -> Result<Self::View<'_>, ValueError> {
        Self::view(bytes)
    }
}

/// Why bytes are no value of a type, or a value has no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    pub(crate) message: String,
    /// They do not begin where the type needs it.
    pub(crate) is_misaligned: bool,
}

impl ValueError {
    /// With a clause that says the trouble.
    pub fn new(message: impl Into<String>) -> ValueError {
        ValueError { message: message.into(), is_misaligned: false }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ValueError {}

/// How often values are checked before they are lent.
pub struct Check<V: ?Sized> {
    trusts: bool,
    of: PhantomData<fn() -> Box<V>>,
}

impl<V: ?Sized> Clone for Check<V> {
    fn clone(&self) -> Check<V> {
        *self
    }
}

impl<V: ?Sized> Copy for Check<V> {}

impl<V: ?Sized> fmt::Debug for Check<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.trusts { "once a block" } else { "each read" })
    }
}

impl<V: Value + ?Sized> Check<V> {
    /// Each value with each read: whatever is in the keyspace, a read of it is sound. The default.
    pub fn each_read() -> Check<V> {
        Check { trusts: false, of: PhantomData }
    }

    /// Once a block, when it comes into memory: by its checksum alone, which says that the bytes
    /// are those that were written. Of large archives, whose check reads all of them.
    ///
    /// # Safety
    /// All that was ever written to the keyspace is a value of type `V`, written by a
    /// [`crate::TypedKeyspace`] of this type; so is all that its merge operator and its compaction
    /// filter make. Others who can write to the store can break that. No part of an archive asks
    /// for an alignment above 16.
    pub unsafe fn once_a_block() -> Check<V> {
        Check { trusts: true, of: PhantomData }
    }

    /// The value in these bytes.
    ///
    /// # Errors
    /// For bytes that lie wrongly, or are no value of the type.
    #[inline]
    pub(crate) fn view<'a>(&self, bytes: &'a [u8]) -> Result<View<'a, V>, ValueError> {
        if !is_aligned(bytes, V::Form::ALIGNMENT) {
            return Err(misaligned(V::Form::ALIGNMENT));
        }
        if self.trusts {
            // SAFETY: the maker of this check says that they are a value, and they lie right.
            unsafe { V::Form::view_again(bytes) }
        } else {
            V::Form::view(bytes)
        }
    }
}

#[cold]
fn misaligned(alignment: usize) -> ValueError {
    ValueError {
        message: format!("a value that does not begin at a multiple of {alignment}"),
        is_misaligned: true,
    }
}

/// A value that is kept: it shares the memory that it lies in, or is a copy where it is small.
pub struct Lent<V: ?Sized> {
    /// Invariant: it was checked, where it lies.
    bytes: tombolo::Value,
    of: PhantomData<fn() -> Box<V>>,
}

impl<V: ?Sized> Clone for Lent<V> {
    fn clone(&self) -> Lent<V> {
        Lent { bytes: self.bytes.clone(), of: PhantomData }
    }
}

impl<V: ?Sized> fmt::Debug for Lent<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Lent").field(&self.bytes).finish()
    }
}

impl<V: Value + ?Sized> Lent<V> {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// As [`Check::view`].
    pub(crate) fn new(bytes: tombolo::Value, check: Check<V>) -> Result<Lent<V>, ValueError> {
        check.view(&bytes)?;
        Ok(Lent { bytes, of: PhantomData })
    }

    /// The value, without a second check.
    ///
    /// # Panics
    /// When its form refuses bytes that it took before.
    pub fn view(&self) -> View<'_, V> {
        // SAFETY: they were checked when this was made; they are immutable and stay in place.
        let view = unsafe { V::Form::view_again(&self.bytes) };
        view.unwrap_or_else(|error| panic!("bytes that were a value are none now: {error}"))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &tombolo::Value {
        &self.bytes
    }
}
