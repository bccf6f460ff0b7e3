//! W-TinyLFU: a small window, whose losers must be more frequent than what they would replace.

use super::Cache;
use super::list::List;

/// Rows of the sketch of frequencies.
const ROWS: usize = 4;
const FREQUENCY_MAX: u8 = 15;

/// See the module's documentation.
pub(super) struct TinyLfu {
    window_max: usize,
    main_max: usize,
    protected_max: usize,
    window: List,
    probation: List,
    protected: List,
    counters: Vec<u8>,
    mask: usize,
    additions: usize,
    additions_max: usize,
}

impl TinyLfu {
    pub(super) fn new(items_max: usize) -> TinyLfu {
        let window_max = (items_max / 100).max(1);
        let main_max = items_max.saturating_sub(window_max);
        let width = (items_max * 2).next_power_of_two().max(64);
        TinyLfu {
            window_max,
            main_max,
            protected_max: main_max * 8 / 10,
            window: List::default(),
            probation: List::default(),
            protected: List::default(),
            counters: vec![0; width * ROWS],
            mask: width - 1,
            additions: 0,
            additions_max: items_max * 10,
        }
    }

    fn places(&self, item: u64) -> [usize; ROWS] {
        let mut mixed = item;
        std::array::from_fn(|row| {
            mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let column = usize::try_from(mixed >> 33).unwrap_or(0) & self.mask;
            row * (self.mask + 1) + column
        })
    }

    fn frequency(&self, item: u64) -> u8 {
        self.places(item).iter().map(|place| self.counters[*place]).min().unwrap_or(0)
    }

    fn count(&mut self, item: u64) {
        let (places, least) = (self.places(item), self.frequency(item));
        for place in places {
            // Only the least ones rise: the others are too high already.
            if self.counters[place] == least {
                self.counters[place] = (least + 1).min(FREQUENCY_MAX);
            }
        }
        self.additions += 1;
        if self.additions >= self.additions_max {
            self.additions = 0;
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
        }
    }
}

impl Cache for TinyLfu {
    fn access(&mut self, item: u64) -> bool {
        self.count(item);
        if self.window.contains(item) {
            self.window.move_to_front(item);
            return true;
        }
        if self.protected.contains(item) {
            self.protected.move_to_front(item);
            return true;
        }
        if self.probation.remove(item) {
            self.protected.push_front(item, 0);
            while self.protected.len() > self.protected_max {
                let Some((moved, _)) = self.protected.pop_back() else { break };
                self.probation.push_front(moved, 0);
            }
            return true;
        }
        self.window.push_front(item, 0);
        if self.window.len() > self.window_max
            && let Some((candidate, _)) = self.window.pop_back()
        {
            if self.probation.len() + self.protected.len() < self.main_max {
                self.probation.push_front(candidate, 0);
            } else if let Some(victim) = self.probation.back().or(self.protected.back())
                && self.frequency(candidate) > self.frequency(victim)
            {
                let _ = self.probation.remove(victim) || self.protected.remove(victim);
                self.probation.push_front(candidate, 0);
            }
        }
        false
    }
}
