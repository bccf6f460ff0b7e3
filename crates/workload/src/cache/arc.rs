//! ARC, as its authors' figure 4 has it.

use super::Cache;
use super::list::List;

/// Two lists of items that are there, of one access and of more, and the ghosts of both.
pub(super) struct Arc {
    items_max: usize,
    /// Items that the first list should have.
    target: f64,
    once: List,
    often: List,
    once_ghosts: List,
    often_ghosts: List,
}

impl Arc {
    pub(super) fn new(items_max: usize) -> Arc {
        let [once, often, once_ghosts, often_ghosts] = std::array::from_fn(|_| List::default());
        Arc { items_max, target: 0.0, once, often, once_ghosts, often_ghosts }
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of items")]
    fn replace(&mut self, in_often_ghosts: bool) {
        let length = self.once.len() as f64;
        let from_once = self.once.len() > 0
            && (length > self.target || in_often_ghosts && (length - self.target).abs() < 1e-9);
        let (from, ghosts) = if from_once || self.often.len() == 0 {
            (&mut self.once, &mut self.once_ghosts)
        } else {
            (&mut self.often, &mut self.often_ghosts)
        };
        if let Some((item, _)) = from.pop_back() {
            ghosts.push_front(item, 0);
        }
    }
}

impl Cache for Arc {
    #[allow(clippy::cast_precision_loss, reason = "numbers of items")]
    fn access(&mut self, item: u64) -> bool {
        if self.once.remove(item) {
            self.often.push_front(item, 0);
            return true;
        }
        if self.often.contains(item) {
            self.often.move_to_front(item);
            return true;
        }
        let (once, often) = (self.once_ghosts.len() as f64, self.often_ghosts.len() as f64);
        if self.once_ghosts.contains(item) {
            self.target = (self.target + (often / once).max(1.0)).min(self.items_max as f64);
            self.replace(false);
            self.once_ghosts.remove(item);
            self.often.push_front(item, 0);
            return false;
        }
        if self.often_ghosts.contains(item) {
            self.target = (self.target - (once / often).max(1.0)).max(0.0);
            self.replace(true);
            self.often_ghosts.remove(item);
            self.often.push_front(item, 0);
            return false;
        }
        let first = self.once.len() + self.once_ghosts.len();
        if first == self.items_max {
            if self.once.len() < self.items_max {
                self.once_ghosts.pop_back();
                self.replace(false);
            } else {
                self.once.pop_back();
            }
        } else {
            let all = first + self.often.len() + self.often_ghosts.len();
            if all >= self.items_max {
                if all == 2 * self.items_max {
                    self.often_ghosts.pop_back();
                }
                self.replace(false);
            }
        }
        self.once.push_front(item, 0);
        false
    }
}
