//! Breadth-first search, so that the history of a violation is a shortest one.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use super::world::{Move, Violation, World};

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// Different worlds seen.
    pub worlds: usize,
    /// Steps of the longest history looked at.
    pub depth: usize,
    /// Whether all worlds within the depth were seen.
    pub complete: bool,
    /// The first violation, with its history.
    pub violation: Option<(Violation, Vec<String>)>,
}

/// Collects the bytes to hash, so that one strong hash covers them.
struct Collecting(Vec<u8>);

impl Hasher for Collecting {
    fn finish(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

fn fingerprint(world: &World, buffer: Vec<u8>) -> (u128, Vec<u8>) {
    let mut hasher = Collecting(buffer);
    hasher.0.clear();
    world.hash(&mut hasher);
    (xxhash_rust::xxh3::xxh3_128(&hasher.0), hasher.0)
}

/// Looks at every history of at most `depth_max` steps, as long as there are at most `worlds_max`
/// different worlds.
pub fn search(start: World, depth_max: usize, worlds_max: usize) -> Found {
    let mut seen = HashSet::new();
    // Every step as (the step before, the action).
    let mut steps: Vec<(u32, Move)> = Vec::new();
    let mut frontier = vec![(start, u32::MAX)];
    let mut buffer = Vec::new();
    for depth in 0..depth_max {
        let mut next = Vec::new();
        for (world, step) in frontier {
            for choice in world.moves() {
                let mut after = world.clone();
                let outcome = after.apply(&choice);
                if let Err(violation) = outcome {
                    let mut history = vec![choice.to_string()];
                    let mut at = step;
                    while let Some((before, choice)) = steps.get(at as usize) {
                        history.push(choice.to_string());
                        at = *before;
                    }
                    history.reverse();
                    return Found {
                        worlds: seen.len(),
                        depth: depth + 1,
                        complete: false,
                        violation: Some((violation, history)),
                    };
                }
                let (print, used) = fingerprint(&after, buffer);
                buffer = used;
                if seen.insert(print) {
                    let index = u32::try_from(steps.len()).unwrap_or(u32::MAX);
                    steps.push((step, choice));
                    next.push((after, index));
                }
            }
            if seen.len() > worlds_max {
                return Found { worlds: seen.len(), depth, complete: false, violation: None };
            }
        }
        if next.is_empty() {
            return Found { worlds: seen.len(), depth, complete: true, violation: None };
        }
        frontier = next;
    }
    Found { worlds: seen.len(), depth: depth_max, complete: true, violation: None }
}
