use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Weak};

use super::super::Resident;
use super::super::tests::{block, key};
use super::*;
use crate::budget::MemoryBudget;

fn entry(number: u64) -> Arc<Entry> {
    let Resident::Block(block) = block(number, 64) else { panic!("a block") };
    Arc::new(Entry::new(key(number), Resident::Block(block), 64, &MemoryBudget::of_any_size(1 << 20)))
}

#[test]
fn what_was_borrowed_outlives_its_place() {
    let place = Place::default();
    assert!(place.load().is_none() && place.swap(None).is_none());
    let first = entry(1);
    let weak = Arc::downgrade(&first);
    assert!(place.swap(Some(first)).is_none());
    let (one, other) = (place.load().unwrap(), place.load().unwrap());
    assert_eq!(weak.strong_count(), 1, "borrowing does not count");
    let taken = place.swap(Some(entry(2))).unwrap();
    assert_eq!(weak.strong_count(), 3, "each borrower is told by a count");
    drop(taken);
    drop(one);
    assert_eq!((other.key, weak.strong_count()), (key(1), 1));
    let kept = other.into_arc();
    assert_eq!((kept.key, weak.strong_count()), (key(1), 1));
    drop(kept);
    assert_eq!(weak.strong_count(), 0);
    assert_eq!(place.load().unwrap().key, key(2));
}

#[test]
fn counts_are_made_of_borrowings_while_the_place_stands() {
    let place = Place::default();
    let first = entry(1);
    let weak = Arc::downgrade(&first);
    place.swap(Some(first));
    let guard = place.load().unwrap();
    let copy = guard.to_arc();
    assert!(guard.is(&copy));
    assert_eq!(weak.strong_count(), 2);
    let kept = guard.into_arc();
    assert_eq!(weak.strong_count(), 3);
    drop((copy, kept));
    assert_eq!(weak.strong_count(), 1);
    let own = Guard::from(place.load_full().unwrap());
    assert_eq!(weak.strong_count(), 2);
    drop(own);
    drop(place);
    assert_eq!(weak.strong_count(), 0, "a place that goes lets go");
}

/// More at once than a node has notes, some of them ended by another thread, and some after the
/// thread has ended.
#[test]
fn many_may_be_borrowed_at_once_and_by_threads_that_end() {
    let place = Place::default();
    let first = entry(1);
    let weak = Arc::downgrade(&first);
    place.swap(Some(first));
    let guards: Vec<Guard> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..3 * NOTES).map(|_| place.load().unwrap()).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let notes: BTreeSet<_> = guards.iter().map(|guard| ptr::from_ref(guard.note.unwrap()).addr()).collect();
    assert_eq!(notes.len(), 9 * NOTES, "a note for each");
    drop(place.swap(None));
    assert_eq!(weak.strong_count(), 9 * NOTES);
    assert!(guards.iter().all(|guard| guard.key == key(1)));
    drop(guards);
    assert_eq!(weak.strong_count(), 0);
}

/// Threads borrow, keep and hand on, while others take out and put in: each entry read is always
/// whole, and all is freed in the end.
#[test]
fn borrowers_and_takers_race() {
    const PLACES: usize = 3;
    let rounds: u64 = if cfg!(miri) { 30 } else { 30_000 };
    let places: [Place; PLACES] = std::array::from_fn(|_| Place::default());
    let (done, start) = (AtomicBool::new(false), Barrier::new(5));
    let weak: Vec<Weak<Entry>> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..2u64)
            .map(|taker| {
                let (places, start) = (&places, &start);
                scope.spawn(move || {
                    start.wait();
                    let mut seen = Vec::new();
                    for round in 0..rounds {
                        let new = entry(2 * round + taker);
                        seen.push(Arc::downgrade(&new));
                        let at = usize::try_from(round).unwrap() % PLACES;
                        let old = places[at].swap(Some(new));
                        // Into another place, as when a table of slots grows: one entry in two of
                        // them.
                        if let Some(old) = old.filter(|_| round % 7 == 0) {
                            drop(places[(at + 1) % PLACES].swap(Some(old)));
                        }
                    }
                    seen
                })
            })
            .collect();
        for borrower in 0..3usize {
            let (places, start, done) = (&places, &start, &done);
            scope.spawn(move || {
                start.wait();
                let (mut held, mut turn) = (Vec::new(), borrower);
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let Some(guard) = places[turn % PLACES].load() else { continue };
                    // Freed memory would hold another number.
                    let bytes = match &guard.resident {
                        Resident::Block(block) => block.bytes().len(),
                        Resident::Partition(_) | Resident::Value(_) => 0,
                    };
                    assert!(bytes > 64);
                    match turn % 5 {
                        0 => held.push(guard.into_arc()),
                        1 => held.push(guard.to_arc()),
                        2 => held.clear(),
                        _ => drop(guard),
                    }
                }
            });
        }
        let seen = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        seen
    });
    let alive = |weak: &[Weak<Entry>]| weak.iter().filter(|weak| weak.strong_count() > 0).count();
    assert_eq!(alive(&weak), PLACES);
    drop(places);
    assert_eq!(alive(&weak), 0);
}
