//! Bytes in memory whose first lies at a multiple of an alignment: what readers need who cast
//! values instead of parsing them.
//!
//! Alignments are powers of two up to [`VALUE_ALIGNMENT_MAX`](crate::block::VALUE_ALIGNMENT_MAX); 1
//! asks for nothing.

use bytes::Bytes;

#[repr(align(4096))]
struct Page([u8; 1]);

static PAGE: Page = Page([0]);

/// Whether the first byte, or where it would be, lies at a multiple of `alignment`.
#[inline]
pub fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    bytes.as_ptr().addr() & (alignment - 1) == 0
}

/// No bytes, at a multiple of every alignment.
pub fn empty() -> &'static [u8] {
    PAGE.0.get(..0).unwrap_or_default()
}

/// The same bytes, in aligned memory of their own.
pub fn copy(bytes: &[u8], alignment: usize) -> Bytes {
    if bytes.is_empty() {
        return Bytes::from_static(empty());
    }
    let mut memory = Vec::new();
    let start = copy_into(bytes, alignment, &mut memory);
    // The vector's memory stays where it is.
    Bytes::from(memory).slice(start..)
}

/// Copies the bytes to the end of what `memory` becomes, aligned; says where they begin.
pub fn copy_into(bytes: &[u8], alignment: usize, memory: &mut Vec<u8>) -> usize {
    memory.clear();
    memory.reserve(bytes.len() + alignment - 1);
    let start = memory.as_ptr().addr().wrapping_neg() & (alignment - 1);
    memory.resize(start, 0);
    memory.extend_from_slice(bytes);
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_begin_at_multiples() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut memory = Vec::new();
        for alignment in (0..=12).map(|log2| 1 << log2) {
            for length in [0, 1, 7, 64, 255] {
                let copied = copy(&bytes[..length], alignment);
                assert!(
                    is_aligned(&copied, alignment) && *copied == bytes[..length],
                    "{length} bytes at {alignment}"
                );
                let start = copy_into(&bytes[..length], alignment, &mut memory);
                assert!(is_aligned(&memory[start..], alignment) && memory[start..] == bytes[..length]);
            }
        }
        assert!(!is_aligned(&copy(&bytes, 64)[1..], 2));
    }
}
