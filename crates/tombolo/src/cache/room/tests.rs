use super::*;
use crate::cache::tests::{block, key};

#[test]
fn evacuations_end_though_other_frames_of_what_they_move_are_held() {
    let cache = BlockCache::new(1 << 20);
    let bytes = block(0, 900).frame_bytes();
    // One in each of several slabs, all for one key: as of cursors that hold older copies of a block that was moved again and again.
    let mut held: Vec<FrameMut> = (0..400).map(|_| cache.frame(key(0), bytes, 1).unwrap()).collect();
    let mut count = 0;
    held.retain(|_| {
        count += 1;
        count % 40 == 1
    });
    cache.insert(key(0), block(0, 900));
    assert!(cache.get(&key(0)).is_some(), "used, so that it is moved and not put out");
    let ends = (0..1000).any(|_| !cache.evacuate(Then::GiveBack));
    assert!(ends, "what lies in one slab is moved for the sake of another, which frees neither");
    assert!(cache.get(&key(0)).is_some());
}
