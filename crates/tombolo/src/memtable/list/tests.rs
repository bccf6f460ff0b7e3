use tombolo_format::key::{EntryKind, SequenceNumber};

use super::*;
use crate::budget::MemoryBudget;

/// Keys that leaves hold after scattered inserts.
const KEYS: u64 = 60;

struct Case {
    list: SortedList,
    bump: Bump,
    keys: Vec<Vec<u8>>,
}

fn trailer() -> Trailer {
    Trailer::new(SequenceNumber(1), EntryKind::Put)
}

impl Case {
    /// A list whose keys came in an order that is none, so that its leaves were split before.
    fn new() -> Case {
        let mut bump = Bump::new(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
        let list = SortedList::new(Arc::clone(bump.arena()));
        let mut keys = Vec::new();
        for number in 0..KEYS {
            let key = (number * 37 % KEYS * 1000).to_be_bytes().to_vec();
            bump.reserve(1000 + STRUCTURE_BYTES_MAX, false).unwrap();
            // SAFETY: one thread, and the memory is reserved.
            unsafe { list.insert(&mut bump, &key, trailer(), b"v", None) };
            keys.push(key);
        }
        keys.sort();
        Case { list, bump, keys }
    }

    /// Adds a key where it belongs until that splits a leaf, and does the first step of the split
    /// alone.
    fn half_split(&mut self, near: u64) -> impl FnOnce(&SortedList) + use<> {
        for more in 1.. {
            let key = (near * 1000 + more).to_be_bytes().to_vec();
            let target = Target { key: &key, trailer: trailer() };
            self.bump.reserve(1000 + STRUCTURE_BYTES_MAX, false).unwrap();
            let (before, _) = self.list.forks.search(&target, None);
            let leaf = load_leaf(self.list.leaf_word(before)).unwrap();
            let (slots, place) = (leaf.slots(), leaf.rank(leaf.slots(), &target));
            let at = self.keys.binary_search(&key).unwrap_err();
            self.keys.insert(at, key.clone());
            if slots.count() < SLOTS {
                // SAFETY: as above.
                unsafe { self.list.insert(&mut self.bump, &key, trailer(), b"v", None) };
                continue;
            }
            let record = Record::write(&mut self.bump, &target, b"v");
            let split = self.list.split(&mut self.bump, &mut 7, before, leaf, (place, record));
            let (fork, height, lowest) = (split.fork, split.height, split.lowest.key.to_vec());
            return move |list: &SortedList| {
                let target = Target { key: &lowest, trailer: trailer() };
                let mut splice = [null_mut(); HEIGHT_MAX];
                list.forks.search(&target, Some(&mut splice));
                list.forks.insert(fork, height, &splice);
            };
        }
        unreachable!("a leaf takes so many and no more")
    }

    fn key(&self, place: Option<Place>) -> Option<Vec<u8>> {
        // SAFETY: the place is of the list.
        place.map(|place| unsafe { self.list.entry(place) }.key.to_vec())
    }

    /// Every key is found by each way to find it.
    fn check(&self, when: &str) {
        let Case { list, keys, .. } = self;
        assert_eq!(
            (self.key(list.first()), self.key(list.last())),
            (keys.first().cloned(), keys.last().cloned()),
            "{when}"
        );
        for (at, key) in keys.iter().enumerate() {
            let place = list.seek(key, trailer());
            assert_eq!(self.key(place).as_ref(), Some(key), "{when}: key {at} is not found");
            let place = place.unwrap();
            assert_eq!(self.key(list.next(place)).as_ref(), keys.get(at + 1), "{when}: after key {at}");
            let before = at.checked_sub(1).and_then(|at| keys.get(at));
            assert_eq!(self.key(list.prev(place)).as_ref(), before, "{when}: before key {at}");
            assert_eq!(
                self.key(list.seek_before(key, trailer())).as_ref(),
                before,
                "{when}: sought before key {at}"
            );
        }
    }
}

/// A reader may come between the steps of a split, when the left half has its place and no fork
/// leads to the right one: it finds everything.
#[test]
fn nothing_is_hidden_between_the_steps_of_a_split() {
    for near in [0, 1, 7, 23, 38, 52, KEYS - 1] {
        let mut case = Case::new();
        case.check("before");
        let link = case.half_split(near);
        case.check(&format!("between the steps near {near}"));
        link(&case.list);
        case.check(&format!("after the split near {near}"));
    }
}
