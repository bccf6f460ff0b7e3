//! Values of any shape, in rkyv's archived form.

use rkyv::api::high::{HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Archived, Portable, Serialize};

use super::{Form, ValueError};

/// Any shape: structures, enumerations, texts, lists, maps, in [rkyv]'s archived form. A view is a
/// reference to the archive in the block; what it points at lies there as well. The check goes
/// through all of the archive.
///
/// ```
/// use tombolo_typed::Value;
///
/// #[derive(rkyv::Archive, rkyv::Serialize, Value)]
/// #[value(rkyv)]
/// struct Order {
///     customer: u64,
///     lines: Vec<String>,
/// }
/// ```
///
/// [rkyv]: https://docs.rs/rkyv
#[derive(Clone, Copy, Debug)]
pub struct Rkyv;

impl<V> Form<V> for Rkyv
where
    V: Archive + 'static + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
    V::Archived: Portable + 'static + for<'a> CheckBytes<HighValidator<'a, rancor::Error>>,
{
    type View<'a> = &'a Archived<V>;

    /// An archive lies right at multiples of 16, whatever is in it.
    const ALIGNMENT: usize = 16;

    fn write<R>(value: &V, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
        let bytes = rkyv::to_bytes::<rancor::Error>(value)
            .map_err(|error| ValueError::new(format!("it has no archived form: {error}")))?;
        Ok(take(&bytes))
    }

    fn view(bytes: &[u8]) -> Result<&Archived<V>, ValueError> {
        rkyv::access::<Archived<V>, rancor::Error>(bytes)
            .map_err(|error| ValueError::new(format!("bytes that are no archive of the type: {error}")))
    }

    unsafe fn view_again(bytes: &[u8]) -> Result<&Archived<V>, ValueError> {
        // SAFETY: the caller says that `view` takes them, which checks all that this relies on.
        Ok(unsafe { rkyv::access_unchecked::<Archived<V>>(bytes) })
    }
}
