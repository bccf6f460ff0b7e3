//! LFU.

use std::collections::BTreeSet;

use super::Cache;
use crate::sketch::HashedMap;

/// Least frequently used; of several, the one that has been so for longest.
pub(super) struct Lfu {
    items_max: usize,
    clock: u64,
    /// Accesses, and since when.
    items: HashedMap<u64, (u64, u64)>,
    order: BTreeSet<(u64, u64, u64)>,
}

impl Lfu {
    pub(super) fn new(items_max: usize) -> Lfu {
        Lfu { items_max, clock: 0, items: HashedMap::default(), order: BTreeSet::new() }
    }
}

impl Cache for Lfu {
    fn access(&mut self, item: u64) -> bool {
        self.clock += 1;
        let before = self.items.get(&item).copied();
        let accesses = match before {
            Some((accesses, since)) => {
                self.order.remove(&(accesses, since, item));
                accesses + 1
            }
            None => {
                if self.items.len() >= self.items_max
                    && let Some((_, _, gone)) = self.order.pop_first()
                {
                    self.items.remove(&gone);
                }
                1
            }
        };
        self.items.insert(item, (accesses, self.clock));
        self.order.insert((accesses, self.clock, item));
        before.is_some()
    }
}
