//! Numbers, texts and bytes: numbers little-endian, as the shipped merge operators have them.

use bytes::Bytes;

use super::{Form, Value, ValueError};

/// Numbers, little-endian; texts and bytes as they are. A view of a number is the number.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Form<$type> for Plain {
            type View<'a> = $type;

            const ALIGNMENT: usize = 1;

            fn write<R>(value: &$type, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
                Ok(take(&value.to_le_bytes()))
            }

            #[inline]
            fn view(bytes: &[u8]) -> Result<$type, ValueError> {
                match bytes.try_into() {
                    Ok(bytes) => Ok(<$type>::from_le_bytes(bytes)),
                    Err(_) => Err(wrong_size(size_of::<$type>(), bytes.len())),
                }
            }
        }

        impl Value for $type {
            type Form = Plain;
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

#[cold]
fn wrong_size(expected: usize, found: usize) -> ValueError {
    ValueError::new(format!("{found} bytes, where a number of {expected} is expected"))
}

impl Form<()> for Plain {
    type View<'a> = ();

    const ALIGNMENT: usize = 1;

    fn write<R>((): &(), take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
        Ok(take(&[]))
    }

    fn view(bytes: &[u8]) -> Result<(), ValueError> {
        if bytes.is_empty() { Ok(()) } else { Err(wrong_size(0, bytes.len())) }
    }
}

impl Value for () {
    type Form = Plain;
}

impl Form<String> for Plain {
    type View<'a> = &'a str;

    const ALIGNMENT: usize = 1;

    fn write<R>(value: &String, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
        Ok(take(value.as_bytes()))
    }

    fn view(bytes: &[u8]) -> Result<&str, ValueError> {
        std::str::from_utf8(bytes).map_err(|error| ValueError::new(format!("text that is no UTF-8: {error}")))
    }
}

impl Value for String {
    type Form = Plain;
}

macro_rules! bytes {
    ($($type:ty),*) => {$(
        impl Form<$type> for Plain {
            type View<'a> = &'a [u8];

            const ALIGNMENT: usize = 1;

            fn write<R>(value: &$type, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
                Ok(take(value))
            }

            fn view(bytes: &[u8]) -> Result<&[u8], ValueError> {
                Ok(bytes)
            }
        }

        impl Value for $type {
            type Form = Plain;
        }
    )*};
}

bytes!(Bytes, Vec<u8>);
