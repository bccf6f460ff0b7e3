//! Structures that are their own bytes.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use super::{Form, ValueError};

/// Structures of fixed size that are their own bytes, without gaps: a view is a reference into the
/// block. A value costs a look at its size, and at those fields of which some bytes are no value.
///
/// ```
/// use tombolo_typed::Value;
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Value)]
/// #[value(zerocopy)]
/// #[repr(C)]
/// struct Bid {
///     bidder: u64,
///     price: u64,
/// }
/// ```
///
/// Numbers have the byte order of the processor; of zerocopy's own (`zerocopy::little_endian`) the
/// data may be read on others, too.
#[derive(Clone, Copy, Debug)]
pub struct Zerocopy;

impl<V: TryFromBytes + IntoBytes + KnownLayout + Immutable + 'static> Form<V> for Zerocopy {
    type View<'a> = &'a V;

    const ALIGNMENT: usize = align_of::<V>();

    fn write<R>(value: &V, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
        Ok(take(value.as_bytes()))
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<&V, ValueError> {
        V::try_ref_from_bytes(bytes).map_err(|_| {
            let expected = size_of::<V>();
            ValueError::new(format!(
                "{} bytes that are no value of the type, which has {expected}",
                bytes.len()
            ))
        })
    }
}
