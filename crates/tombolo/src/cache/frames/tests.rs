use std::collections::BTreeMap;

use tombolo_format::manifest::TableName;

use super::slab::{frame_bytes, region_bytes};
use super::*;
use crate::budget::Category;

fn key(number: u64) -> CacheKey {
    CacheKey { table: TableName { epoch: 1, random: 1 }, offset: number }
}

fn frame(frames: &Arc<Frames>, number: u64, bytes: usize, alignment: usize) -> Option<FrameMut> {
    frames.take(key(number), bytes, alignment).or_else(|| {
        frames.grow(bytes, alignment);
        frames.take(key(number), bytes, alignment)
    })
}

/// What every byte of a frame is filled with.
fn mark(number: u64) -> u8 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[test]
fn frames_waste_an_eighth_at_most_and_begin_at_cache_lines() {
    for bytes in
        (1..if cfg!(miri) { 20 } else { 5000 }).chain([8191, 8192, 8193, 33_000, 1 << 20, (1 << 20) + 1])
    {
        let frame = frame_bytes(bytes);
        assert!(frame >= bytes && frame.is_multiple_of(64), "{frame} for {bytes}");
        assert!(frame <= 512.max(bytes + bytes / 8 + 1), "{frame} for {bytes}");
        assert_eq!(frame_bytes(frame), frame);
    }
    assert_eq!(frame_bytes(8192), 8192, "blocks of the default size fill theirs");
}

#[test]
fn regions_grow_with_what_is_held_up_to_a_huge_page() {
    const HUGE: usize = 2 << 20;
    assert_eq!(region_bytes(1024, 0, 256 << 20), 16 << 10);
    assert_eq!(region_bytes(8192, 0, 256 << 20), 32 << 10, "of several frames");
    assert_eq!(region_bytes(8192, 8 << 20, 256 << 20), 512 << 10);
    assert_eq!(region_bytes(8192, 200 << 20, 256 << 20), HUGE);
    assert_eq!(region_bytes(8192, 1 << 20, 1 << 20), 8192, "a small budget is not cut into few pieces");
    assert_eq!(region_bytes(5 << 20, 0, 1 << 30), 5 << 20, "what is large has a region of its own");
}

/// Compared with its own rest, which costs a test that is not optimised next to nothing.
fn is_filled(bytes: &[u8], mark: u8) -> bool {
    bytes.split_first().is_none_or(|(first, rest)| *first == mark && *rest == bytes[..rest.len()])
}

#[test]
fn frames_are_apart_keep_what_they_hold_and_are_given_back() {
    let budget = MemoryBudget::of_any_size(16 << 20);
    let frames = Frames::new(&budget);
    let mut held: BTreeMap<u64, Bytes> = BTreeMap::new();
    let (steps, bytes_max): (u64, usize) = if cfg!(miri) { (60, 300) } else { (20_000, 60_000) };
    let mut refused = 0;
    for step in 0..steps {
        let chance = step.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 20;
        let alignment = [1, 1, 64, 4096][chance as usize % 4];
        let bytes = 1 + (chance >> 8) as usize % bytes_max;
        match frame(&frames, step, bytes, alignment) {
            Some(mut frame) => {
                assert!(frame.len() == bytes && frame.as_ptr().addr().is_multiple_of(alignment));
                frame.fill(mark(step));
                held.insert(step, frame.freeze());
            }
            None => refused += 1,
        }
        if held.len() > 40 + (chance >> 40) as usize % 400 {
            let number = *held.keys().nth((chance >> 30) as usize % held.len()).unwrap();
            let bytes = held.remove(&number).unwrap();
            assert!(is_filled(&bytes, mark(number)), "the frame of step {number} in step {step}");
        }
    }
    assert!(refused < steps / 2, "{refused} of {steps}");
    for (number, bytes) in &held {
        assert!(is_filled(bytes, mark(*number)));
    }
    drop(held);
    while frames.give_empty_back() {}
    assert_eq!((budget.used_bytes(), frames.state.lock().held_bytes), (0, 0));
}

#[test]
fn regions_are_charged_and_frames_are_not_charged_twice() {
    let budget = MemoryBudget::of_any_size(64 << 20);
    let frames = Frames::new(&budget);
    assert!(frames.take(key(1), 8000, 1).is_none());
    let taken = frame(&frames, 1, 8000, 1).unwrap();
    let free = budget.used(Category::Cache);
    assert_eq!((taken.charged_bytes(), free + taken.charged_bytes()), (8192, frames.state.lock().held_bytes));
    let other = frames.take(key(2), 8000, 1).unwrap();
    assert_eq!(budget.used(Category::Cache), free - 8192);
    assert!(!frames.give_empty_back(), "it holds something");
    drop((taken, other));
    assert!(frames.give_empty_back());
    assert_eq!(budget.used(Category::Cache), 0);
}

#[test]
fn nothing_grows_beyond_what_the_budget_leaves() {
    let budget = MemoryBudget::of_any_size(4 << 20);
    let frames = Frames::new(&budget);
    let _memtable = budget.charge(Category::Memtables, 2 << 20);
    let mut held = Vec::new();
    while let Some(frame) = frame(&frames, 1, 8000, 1) {
        // As entries are.
        budget.add_cached(frame.charged_bytes());
        held.push(frame);
    }
    let bytes = frames.state.lock().held_bytes;
    assert!(
        bytes <= budget.cache_bytes_max() && bytes > budget.cache_bytes_max() / 4 * 3,
        "{bytes} of {}",
        budget.cache_bytes_max()
    );
}

#[test]
fn what_holds_least_is_evacuated_and_cut_anew() {
    let budget = MemoryBudget::of_any_size(16 << 20);
    let frames = Frames::new(&budget);
    let mut held: Vec<_> = (0..64).map(|number| frame(&frames, number, 8000, 1).unwrap()).collect();
    // Of one slab one stays.
    let slab = held[20].0.slab;
    held.retain(|frame| frame.0.slab != slab || frame.0.index == 0);
    let evacuation = frames.begin_evacuation().unwrap();
    let (left, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|frame| frame.0.slab == slab);
    assert_eq!((evacuation.slab, &evacuation.residents), (slab, &vec![key(20 / 4 * 4)]));
    assert_ne!(frame(&frames, 100, 8000, 1).unwrap().0.slab, slab, "nothing is taken from it meanwhile");
    assert!(!frames.end_evacuation(&evacuation, Then::GiveBack), "one is still held");
    assert_ne!(frames.begin_evacuation().unwrap().slab, slab, "another one's turn");
    drop(left);
    let evacuation = frames.begin_evacuation().unwrap();
    assert_eq!((evacuation.slab, evacuation.residents.len()), (slab, 0));
    assert!(frames.end_evacuation(&evacuation, Then::Cut(1000, 1)));
    assert_eq!(frames.take(key(200), 1000, 1).unwrap().0.slab, slab);
    drop(others);
}

#[test]
fn frames_may_outlive_the_cache() {
    let budget = MemoryBudget::of_any_size(16 << 20);
    let frames = Frames::new(&budget);
    let mut one = frame(&frames, 1, 8000, 1).unwrap();
    let other = frame(&frames, 2, 2000, 1).unwrap();
    drop(other);
    one.fill(7);
    let one = one.freeze();
    frames.close();
    drop(frames);
    assert!(one.iter().all(|byte| *byte == 7));
    drop(one);
    assert_eq!(budget.used_bytes(), 0);
}
