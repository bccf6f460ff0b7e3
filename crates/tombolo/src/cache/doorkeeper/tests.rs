use std::collections::{HashMap, VecDeque};

use super::*;

/// A cache of so many blocks behind the door, out of which the block goes that came first unless it
/// was found since.
struct Cache {
    door: Doorkeeper,
    residents: HashMap<u64, bool>,
    queue: VecDeque<u64>,
    blocks: usize,
    hits: u64,
    misses: u64,
    admitted: u64,
    state: u64,
}

impl Cache {
    fn new(blocks: usize) -> Cache {
        let door = Doorkeeper::new(blocks as u64 * BYTES_PER_PLACE);
        Cache {
            door,
            residents: HashMap::new(),
            queue: VecDeque::new(),
            blocks,
            hits: 0,
            misses: 0,
            admitted: 0,
            state: 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }

    fn look(&mut self, block: u64) {
        if let Some(used) = self.residents.get_mut(&block) {
            *used = true;
            self.hits += 1;
            return;
        }
        self.misses += 1;
        let (hits, entries) = (self.hits, self.residents.len() as u64);
        let is_full = self.residents.len() == self.blocks;
        let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ block.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_right(31);
        if is_full && !self.door.knows(hash, || (hits, entries)) {
            return;
        }
        while self.residents.len() == self.blocks {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.residents.insert(oldest, false) {
                Some(true) => self.queue.push_back(oldest),
                _ => drop(self.residents.remove(&oldest)),
            }
        }
        self.admitted += 1;
        self.residents.insert(block, false);
        self.queue.push_back(block);
    }

    /// Looks at blocks from `first` on, evenly; the share of hits, and of misses that were
    /// admitted.
    fn spread(&mut self, first: u64, blocks: u64, looks: u64) -> (f64, f64) {
        let before = (self.hits, self.misses, self.admitted);
        for _ in 0..looks {
            let block = first + self.random() % blocks;
            self.look(block);
        }
        let (misses, admitted) = ((self.misses - before.1) as f64, (self.admitted - before.2) as f64);
        ((self.hits - before.0) as f64 / looks as f64, admitted / misses.max(1.0))
    }
}

#[test]
fn of_even_reads_over_more_than_fits_few_blocks_come_in() {
    for times in [2, 4, 16] {
        let mut cache = Cache::new(4000);
        cache.spread(0, 4000 * times, 100_000);
        let (hits, admitted) = cache.spread(0, 4000 * times, 200_000);
        assert!(admitted < 0.18, "{times} times the cache: {admitted} of the misses");
        assert!(hits > 0.9 / times as f64, "{times} times the cache: {hits} are hits");
    }
}

#[test]
fn blocks_that_fit_are_all_in_soon_after_others_were_read() {
    let mut cache = Cache::new(4000);
    cache.spread(0, 3900, 100_000);
    let (hits, _) = cache.spread(0, 3900, 10_000);
    assert!(hits > 0.999, "{hits}");
    // After a dozen reads of each of the others most of them are in: two dozen misses at 3 µs are
    // forgotten soon.
    cache.spread(10_000, 3900, 12 * 3900);
    let (hits, _) = cache.spread(10_000, 3900, 10_000);
    assert!(hits > 0.85, "{hits} of the new ones are hits");
}

#[test]
fn half_of_the_cache_is_given_to_others_that_are_read_as_often() {
    let mut cache = Cache::new(4000);
    cache.spread(0, 3900, 100_000);
    // Half of the blocks read before, from the middle on, are read again; others come in beside
    // them.
    cache.spread(2000, 3900, 100_000);
    let (hits, _) = cache.spread(2000, 3900, 10_000);
    assert!(hits > 0.95, "{hits} are hits");
}

#[test]
fn what_is_asked_for_much_more_often_than_the_rest_comes_in() {
    let mut cache = Cache::new(4000);
    cache.spread(0, 40_000, 200_000);
    for _ in 0..20_000 {
        cache.spread(0, 40_000, 5);
        cache.spread(100_000, 500, 5);
    }
    let (hits, _) = cache.spread(100_000, 500, 5000);
    assert!(hits > 0.95, "{hits} of the hot ones are hits");
}
