//! A list of items, linked both ways in one vector, whose places are found by item.

use crate::sketch::HashedMap;

const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    item: u64,
    /// Towards the front.
    before: usize,
    /// Towards the back.
    after: usize,
    /// What the policy notes of it.
    note: u32,
}

/// New items come in at the front.
#[derive(Clone, Debug)]
pub(super) struct List {
    nodes: Vec<Node>,
    free: Vec<usize>,
    places: HashedMap<u64, usize>,
    front: usize,
    back: usize,
}

impl Default for List {
    fn default() -> List {
        let (nodes, free) = (Vec::new(), Vec::new());
        List { nodes, free, places: HashedMap::default(), front: NONE, back: NONE }
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, item: u64) -> bool {
        self.places.contains_key(&item)
    }

    /// The note of an item that is there.
    pub(super) fn note(&mut self, item: u64) -> Option<&mut u32> {
        let place = *self.places.get(&item)?;
        Some(&mut self.nodes[place].note)
    }

    pub(super) fn push_front(&mut self, item: u64, note: u32) {
        let node = Node { item, before: NONE, after: self.front, note };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        match self.front {
            NONE => self.back = place,
            front => self.nodes[front].before = place,
        }
        self.front = place;
        self.places.insert(item, place);
    }

    /// The last item and its note.
    pub(super) fn pop_back(&mut self) -> Option<(u64, u32)> {
        let node = *self.nodes.get(self.back)?;
        self.remove(node.item);
        Some((node.item, node.note))
    }

    pub(super) fn remove(&mut self, item: u64) -> bool {
        let Some(place) = self.places.remove(&item) else { return false };
        let Node { before, after, .. } = self.nodes[place];
        match before {
            NONE => self.front = after,
            before => self.nodes[before].after = after,
        }
        match after {
            NONE => self.back = before,
            after => self.nodes[after].before = before,
        }
        self.free.push(place);
        true
    }

    pub(super) fn move_to_front(&mut self, item: u64) {
        if let Some(note) = self.note(item).copied() {
            self.remove(item);
            self.push_front(item, note);
        }
    }

    /// The last item.
    pub(super) fn back(&self) -> Option<u64> {
        self.nodes.get(self.back).map(|node| node.item)
    }

    /// The item towards the front from this one.
    pub(super) fn before(&self, item: u64) -> Option<u64> {
        let place = *self.places.get(&item)?;
        self.nodes.get(self.nodes[place].before).map(|node| node.item)
    }
}
