//! LRU, and taking items in at their second access.

use super::list::List;
use super::{Cache, Holds};

/// Least recently used.
pub(super) struct Lru {
    items_max: usize,
    list: List,
}

impl Lru {
    pub(super) fn new(items_max: usize) -> Lru {
        Lru { items_max, list: List::default() }
    }
}

impl Cache for Lru {
    fn access(&mut self, item: u64) -> bool {
        if self.list.contains(item) {
            self.list.move_to_front(item);
            return true;
        }
        if self.list.len() >= self.items_max {
            self.list.pop_back();
        }
        self.list.push_front(item, 0);
        false
    }
}

impl Holds for Lru {
    fn holds(&self, item: u64) -> bool {
        self.list.contains(item)
    }
}

/// A cache whose door only opens for items that were seen not long before.
pub(super) struct Ghosted<C> {
    cache: C,
    seen_max: usize,
    seen: List,
}

impl<C> Ghosted<C> {
    pub(super) fn new(cache: C, seen_max: usize) -> Ghosted<C> {
        Ghosted { cache, seen_max, seen: List::default() }
    }
}

impl<C: Holds> Cache for Ghosted<C> {
    fn access(&mut self, item: u64) -> bool {
        if self.cache.holds(item) || self.seen.remove(item) {
            return self.cache.access(item);
        }
        if self.seen.len() >= self.seen_max {
            self.seen.pop_back();
        }
        self.seen.push_front(item, 0);
        false
    }
}
