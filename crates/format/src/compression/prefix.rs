//! The beginning of an LZ4 block, without the rest of it.
//!
//! `lz4_sys` links the whole reference implementation and declares a part of it: the function that
//! ends where the caller says is declared here.

use std::ffi::{c_char, c_int};

// That the library is linked.
use lz4_sys as _;

use super::{FormatError, Result};

unsafe extern "C" {
    /// Decompresses at most `target` bytes of the block of `source_bytes` at `source` to
    /// `destination`, which has room for `room`. Returns how many it wrote, or less than 0 when the
    /// block is malformed. Reads and writes within the two bounds whatever the block says (lz4.h,
    /// 1.10).
    fn LZ4_decompress_safe_partial(
        source: *const c_char,
        destination: *mut c_char,
        source_bytes: c_int,
        target: c_int,
        room: c_int,
    ) -> c_int;
}

/// Decompresses the first bytes of an LZ4 block, as many as `raw` has room for.
///
/// # Errors
/// `Damaged` when the block is malformed as far as it was read, or has fewer bytes.
pub(crate) fn decompress_prefix_into(data: &[u8], raw: &mut [u8]) -> Result<()> {
    let (Ok(source_bytes), Ok(wanted)) = (c_int::try_from(data.len()), c_int::try_from(raw.len())) else {
        return Err(FormatError::damaged(
            0,
            "a block below 2 GiB",
            format!("{} bytes", data.len().max(raw.len())),
        ));
    };
    // SAFETY: both pointers are of slices that live through the call, with their lengths, of which
    // neither is beyond 31 bits; the function reads and writes within them whatever the source
    // holds, and keeps neither. The slices do not overlap: one is borrowed mutably.
    let written = unsafe {
        LZ4_decompress_safe_partial(
            data.as_ptr().cast(),
            raw.as_mut_ptr().cast(),
            source_bytes,
            wanted,
            wanted,
        )
    };
    match written {
        written if written == wanted => Ok(()),
        written if written < 0 => Err(FormatError::damaged(0, "lz4 data", "what does not decompress")),
        written => {
            Err(FormatError::damaged(0, format!("{wanted} bytes when decompressed"), written.to_string()))
        }
    }
}
