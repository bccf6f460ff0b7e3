//! The best that a cache could do.

use std::collections::BTreeSet;

use crate::sketch::HashedMap;

/// Misses of a cache that knows all accesses, and lets the item go whose next one is farthest. That
/// may be the new one: a cache that has to take each item in does worse than one that turns some
/// away.
#[must_use]
pub fn belady_misses(accesses: &[u64], items_max: usize) -> u64 {
    let items_max = items_max.max(1);
    let (mut next_of, mut nexts) = (HashedMap::default(), vec![usize::MAX; accesses.len()]);
    for (index, item) in accesses.iter().enumerate().rev() {
        if let Some(next) = next_of.insert(*item, index) {
            nexts[index] = next;
        }
    }
    // Items that are there by their next access, which is each one's own but for those that come no
    // more.
    let (mut order, mut held, mut misses) = (BTreeSet::new(), HashedMap::<u64, usize>::default(), 0);
    for (item, next) in accesses.iter().zip(nexts) {
        order.insert((next, *item));
        match held.insert(*item, next) {
            Some(before) => {
                order.remove(&(before, *item));
            }
            None => {
                misses += 1;
                if held.len() > items_max
                    && let Some((_, gone)) = order.pop_last()
                {
                    held.remove(&gone);
                }
            }
        }
    }
    misses
}
