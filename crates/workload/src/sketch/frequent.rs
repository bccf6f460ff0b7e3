//! The most frequent items: Space-Saving (Metwally et al., "Efficient computation of frequent and
//! top-k elements in data streams", 2005), with counters in the order of a heap.

use super::HashedMap;

/// One item that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heavy {
    /// Its name.
    pub item: Vec<u8>,
    /// How often it came: this at most.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// The most frequent items of a stream. An item that came more often than the whole by the number
/// of counters is among them.
#[derive(Clone, Debug)]
pub struct Frequent {
    counters_max: usize,
    /// A heap: no counter is above those at twice its place and one or two more.
    counters: Vec<(u64, Heavy)>,
    places: HashedMap<u64, usize>,
}

impl Frequent {
    /// With so many counters, at least 1.
    #[must_use]
    pub fn new(counters_max: usize) -> Frequent {
        Frequent { counters_max: counters_max.max(1), counters: Vec::new(), places: HashedMap::default() }
    }

    /// Takes an item by its hash and its name.
    pub fn add(&mut self, hash: u64, item: &[u8]) {
        if let Some(place) = self.places.get(&hash).copied() {
            self.counters[place].1.count += 1;
            self.sink(place);
            return;
        }
        if self.counters.len() < self.counters_max {
            let place = self.counters.len();
            self.counters.push((hash, Heavy { item: item.to_vec(), count: 1, error: 0 }));
            self.places.insert(hash, place);
            self.rise(place);
            return;
        }
        let (before, least) = &mut self.counters[0];
        self.places.remove(before);
        *before = hash;
        least.error = least.count;
        least.count += 1;
        least.item.clear();
        least.item.extend_from_slice(item);
        self.places.insert(hash, 0);
        self.sink(0);
    }

    /// The most frequent ones, by falling count.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<Heavy> {
        let mut all: Vec<Heavy> = self.counters.iter().map(|(_, heavy)| heavy.clone()).collect();
        all.sort_by(|first, second| {
            second.count.cmp(&first.count).then_with(|| first.item.cmp(&second.item))
        });
        all.truncate(most);
        all
    }

    fn swap(&mut self, first: usize, second: usize) {
        self.counters.swap(first, second);
        for place in [first, second] {
            self.places.insert(self.counters[place].0, place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.counters[above].1.count <= self.counters[place].1.count {
                return;
            }
            self.swap(above, place);
            place = above;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below =
                [2 * place + 1, 2 * place + 2].into_iter().filter(|below| *below < self.counters.len());
            let Some(least) = below.min_by_key(|below| self.counters[*below].1.count) else { return };
            if self.counters[place].1.count <= self.counters[least].1.count {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}
