//! A hint to the processor: what it will read soon.
//!
//! A search in memory that is in no cache waits for one line after the other, because each probe's
//! place depends on the last one's answer. Lines that are asked for together come together.

/// Bytes of a cache line, on the processors that matter; elsewhere a hint more or less does no
/// harm.
const LINE_BYTES: usize = 64;

/// At most so many lines are asked for: more than this a core cannot have on their way.
const LINES_MAX: usize = 16;

/// Asks for the first KiB of `bytes`. Changes nothing but how long the next reads take.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    let mut rest = &bytes[..bytes.len().min(LINES_MAX * LINE_BYTES)];
    while let Some((_, after)) = rest.split_at_checked(LINE_BYTES) {
        prefetch_line(rest);
        rest = after;
    }
    prefetch_line(rest);
}

/// Asks for the line in which `bytes` begin.
#[inline]
pub fn prefetch_line(bytes: &[u8]) {
    hint(bytes.as_ptr());
}

/// Asks for the line in which a value begins; what it points to is asked for once it is there.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    hint(std::ptr::from_ref(value).cast());
}

/// Asks for the line at an address, whatever lies there; it is not read.
#[inline]
pub fn prefetch_address(address: *const u8) {
    hint(address);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn hint(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program could see and never faults, wherever it
    // points; the instruction is part of every processor of this architecture.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// There is no stable way to say so on this architecture.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn hint(_address: *const u8) {}
