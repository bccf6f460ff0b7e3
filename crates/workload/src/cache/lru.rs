//! LRU, and taking items in at their second access.

use super::Cache;
use super::list::List;

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

/// A cache whose door only opens for items that were seen not long before.
pub(super) struct Ghosted<C> {
    cache: C,
    seen_max: usize,
    seen: List,
    held: crate::sketch::HashedMap<u64, ()>,
}

impl<C: Cache> Ghosted<C> {
    pub(super) fn new(cache: C, seen_max: usize) -> Ghosted<C> {
        Ghosted { cache, seen_max, seen: List::default(), held: crate::sketch::HashedMap::default() }
    }
}

impl<C: Cache> Cache for Ghosted<C> {
    fn access(&mut self, item: u64) -> bool {
        // An item once let in is asked for again; whether it is still there the cache knows.
        if self.held.contains_key(&item) || self.seen.remove(item) {
            self.held.insert(item, ());
            let was_there = self.cache.access(item);
            if !was_there && self.held.len() > 4 * self.seen_max {
                self.held.clear();
                self.held.insert(item, ());
            }
            return was_there;
        }
        if self.seen.len() >= self.seen_max {
            self.seen.pop_back();
        }
        self.seen.push_front(item, 0);
        false
    }
}
