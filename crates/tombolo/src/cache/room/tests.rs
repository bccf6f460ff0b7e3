use super::*;
use crate::cache::tests::{block, key};

#[test]
fn evacuations_end_though_other_frames_of_what_they_move_are_held() {
    let cache = BlockCache::new(1 << 20);
    let bytes = block(0, 900).frame_bytes();
    // One in each of several slabs, all for one key: as of cursors that hold older copies of a
    // block that was moved again and again.
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

/// Index and filter partitions, each used every 64 reads, beside blocks that are hardly ever read
/// twice. Two ways to lose them: a slab of few large frames holds least and is evacuated over and
/// over; and a shard comes to hold next to nothing, and its hand goes round in no time.
#[test]
fn what_is_used_all_the_time_stays_while_blocks_of_other_sizes_come_and_go() {
    // Of a database of 2 million keys of 120 B.
    let partition_bytes = [47_000, 27_000, 19_000, 40_300];
    for megabytes in [4, 8, 15] {
        let cache = BlockCache::new(megabytes << 20);
        let mut missed = 0;
        let mut state = 1_u64;
        for step in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = state >> 33;
            let (table, number) = (random % 64, random % 40_000);
            let partition = key(1_000_000 + table);
            if cache.get(&partition).is_none() {
                missed += u64::from(step > 10_000);
                cache.insert(partition, block(0, partition_bytes[usize::try_from(table % 4).unwrap()]));
            }
            if cache.get(&key(number)).is_none() {
                cache.insert(key(number), block(number, 7900 + usize::try_from(number % 300).unwrap()));
            }
        }
        assert!(
            missed <= 30,
            "{missed} of 30,000 partitions were missed in {megabytes} MiB: {:?}",
            cache.stats()
        );
    }
}
