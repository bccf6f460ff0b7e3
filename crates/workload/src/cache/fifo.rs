//! Queues with a mark: CLOCK, SIEVE, S3-FIFO.

use super::list::List;
use super::{Cache, Holds};

/// CLOCK with one bit.
pub(super) struct Clock {
    items_max: usize,
    list: List,
}

impl Clock {
    pub(super) fn new(items_max: usize) -> Clock {
        Clock { items_max, list: List::default() }
    }
}

impl Cache for Clock {
    fn access(&mut self, item: u64) -> bool {
        if let Some(mark) = self.list.note(item) {
            *mark = 1;
            return true;
        }
        if self.list.len() >= self.items_max {
            while let Some((spared, 1)) = self.list.pop_back() {
                self.list.push_front(spared, 0);
            }
        }
        self.list.push_front(item, 0);
        false
    }
}

impl Holds for Clock {
    fn holds(&self, item: u64) -> bool {
        self.list.contains(item)
    }
}

/// SIEVE: the hand goes from the oldest to the newest, and items stay where they are.
pub(super) struct Sieve {
    items_max: usize,
    list: List,
    hand: Option<u64>,
}

impl Sieve {
    pub(super) fn new(items_max: usize) -> Sieve {
        Sieve { items_max, list: List::default(), hand: None }
    }
}

impl Cache for Sieve {
    fn access(&mut self, item: u64) -> bool {
        if let Some(mark) = self.list.note(item) {
            *mark = 1;
            return true;
        }
        if self.list.len() >= self.items_max {
            let mut at = self.hand.or(self.list.back());
            while let Some(spared) = at {
                match self.list.note(spared) {
                    Some(mark) if *mark > 0 => *mark = 0,
                    _ => break,
                }
                at = self.list.before(spared).or(self.list.back());
            }
            if let Some(gone) = at {
                self.hand = self.list.before(gone);
                self.list.remove(gone);
            }
        }
        self.list.push_front(item, 0);
        false
    }
}

/// S3-FIFO: a tenth for new items, and the rest for those that were accessed again.
pub(super) struct S3Fifo {
    small_max: usize,
    main_max: usize,
    small: List,
    main: List,
    ghost: List,
}

/// Accesses in the small queue from which an item goes to the main one.
const TO_MAIN: u32 = 2;
/// Most accesses that are noted.
const NOTED_MAX: u32 = 3;

impl S3Fifo {
    pub(super) fn new(items_max: usize) -> S3Fifo {
        let small_max = (items_max / 10).max(1);
        let main_max = items_max - small_max.min(items_max);
        let (small, main, ghost) = (List::default(), List::default(), List::default());
        S3Fifo { small_max, main_max, small, main, ghost }
    }

    fn evict(&mut self) {
        if self.main.len() > self.main_max || self.small.len() == 0 {
            self.evict_main();
            return;
        }
        while let Some((item, accesses)) = self.small.pop_back() {
            if accesses >= TO_MAIN {
                self.main.push_front(item, 0);
                continue;
            }
            if self.ghost.len() >= self.main_max {
                self.ghost.pop_back();
            }
            self.ghost.push_front(item, 0);
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some((item, accesses)) = self.main.pop_back() {
            if accesses == 0 {
                return;
            }
            self.main.push_front(item, accesses.min(NOTED_MAX) - 1);
        }
    }
}

impl Cache for S3Fifo {
    fn access(&mut self, item: u64) -> bool {
        for queue in [&mut self.small, &mut self.main] {
            if let Some(accesses) = queue.note(item) {
                *accesses = (*accesses + 1).min(NOTED_MAX);
                return true;
            }
        }
        let was_seen = self.ghost.remove(item);
        while self.small.len() + self.main.len() >= self.small_max + self.main_max {
            self.evict();
        }
        if was_seen { &mut self.main } else { &mut self.small }.push_front(item, 0);
        false
    }
}
