use super::{Buffer, HUGE_PAGE_BYTES, Region};

#[test]
fn regions_are_zeroed_aligned_and_rounded() {
    for (asked, length) in [
        (1, 4096),
        (4096, 4096),
        (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES),
        (HUGE_PAGE_BYTES + 1, 2 * HUGE_PAGE_BYTES),
    ] {
        let region = Region::new(asked).unwrap();
        assert_eq!(region.length(), length);
        if asked >= HUGE_PAGE_BYTES {
            assert!(region.base().addr().get().is_multiple_of(HUGE_PAGE_BYTES));
        }
        // SAFETY: the region is alive, `length` bytes long, and this thread alone touches it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), length) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        assert_eq!(bytes[length - 1], 7);
    }
}

#[test]
#[cfg(all(target_env = "gnu", not(miri)))]
fn the_heap_is_counted_and_what_was_freed_is_not() {
    // More than other tests of the same process allocate meanwhile.
    const BYTES: usize = 64 << 20;
    let before = super::heap_bytes().unwrap();
    let kept = std::hint::black_box(vec![1u8; BYTES]);
    let with = super::heap_bytes().unwrap();
    drop(kept);
    let after = super::heap_bytes().unwrap();
    assert!(with > before + BYTES as u64 / 2 && after < with - BYTES as u64 / 2, "{before} {with} {after}");
}

#[test]
fn impossible_lengths_are_refused() {
    assert!(Region::new(0).is_err());
    assert!(Region::new(usize::MAX).is_err());
    assert!(Region::new(isize::MAX as usize).is_err());
}

#[test]
fn a_buffer_is_zeros_that_can_be_filled() {
    for length in [0, 1, 5000, HUGE_PAGE_BYTES + 1] {
        let mut buffer = Buffer::zeroed(length).unwrap();
        assert!(buffer.len() == length && buffer.iter().all(|byte| *byte == 0));
        buffer.fill(7);
        assert!(buffer.as_ref().iter().all(|byte| *byte == 7));
    }
    assert!(Buffer::zeroed(usize::MAX).is_err());
}
