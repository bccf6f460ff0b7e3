//! What an older program may do to the entries of a newer one: every history of a few entries of
//! one key, with every set of snapshots, looked at exhaustively.
//!
//! The newer program knows a kind whose operands add up over the value below them. The older one is
//! this program: it flushes and compacts what the newer one left, if it does not refuse.

use bytes::Bytes;

use super::*;

const NEWER: u8 = 100;
const ENTRIES_MAX: u64 = 4;

/// An entry of the one key; its operand or value is its number.
type Entry = (u64, u8);

fn trailer((number, kind): Entry) -> Trailer {
    Trailer(number << 8 | u64::from(kind))
}

/// What the newer program reads at a moment: operands over the newest value that the moment sees.
fn newer_reads(entries: &[Entry], moment: u64) -> Option<u64> {
    let mut sum = None;
    for (number, kind) in entries.iter().filter(|(number, _)| *number <= moment) {
        match *kind {
            NEWER => sum = Some(sum.unwrap_or(0) + number),
            1 => return Some(sum.unwrap_or(0) + number),
            _ => return sum,
        }
    }
    sum
}

/// The entries that are kept, newest first.
fn kept(entries: &[Entry], snapshots: &[u64], is_bottom: bool) -> Result<Vec<Entry>, Unresolved> {
    let mut retention = Retention::new(
        Moments {
            snapshots: snapshots.iter().map(|snapshot| (SequenceNumber(*snapshot), 0)).collect(),
            settled_ms: 0,
        },
        Judge::default(),
    );
    let mut kept = Vec::new();
    for entry in entries {
        if retention.take(b"key", trailer(*entry), Bytes::new, |_| is_bottom)? == Taken::Kept {
            kept.push(*entry);
        }
    }
    Ok(kept)
}

/// What would be kept by a program that takes what it does not know for a put.
fn kept_by_a_careless_one(entries: &[Entry], snapshots: &[u64], is_bottom: bool) -> Vec<Entry> {
    let taken = |(number, kind): &Entry| (*number, if *kind == NEWER { EntryKind::Put as u8 } else { *kind });
    let known: Vec<Entry> = entries.iter().map(taken).collect();
    let kept = kept(&known, snapshots, is_bottom).unwrap_or_default();
    entries.iter().filter(|(number, _)| kept.iter().any(|(other, _)| other == number)).copied().collect()
}

/// Every history, newest entry first, with its snapshots: number `n` is the n-th entry.
fn histories() -> Vec<(Vec<Entry>, Vec<u64>)> {
    let kinds = [EntryKind::Put as u8, EntryKind::Delete as u8, NEWER];
    let mut all = Vec::new();
    let mut choices: Vec<Vec<Entry>> = vec![Vec::new()];
    for number in 1..=ENTRIES_MAX {
        // Each history so far, with one more entry, which is the newest.
        choices = choices
            .iter()
            .flat_map(|older| kinds.map(|kind| [&[(number, kind)][..], older].concat()))
            .collect();
        for entries in &choices {
            for snapshots in 0..1_u64 << number {
                let moments = (1..=number).filter(|number| snapshots >> (number - 1) & 1 == 1);
                all.push((entries.clone(), moments.collect()));
            }
        }
    }
    all
}

/// Whether somebody who looks from a snapshot, or from now, sees another thing than before.
fn is_seen(before: &[Entry], after: &[Entry], snapshots: &[u64]) -> bool {
    let mut moments = snapshots.iter().copied().chain([u64::MAX]);
    moments.any(|moment| newer_reads(before, moment) != newer_reads(after, moment))
}

#[test]
fn an_older_program_refuses_or_harms_nothing() {
    let (mut refused, mut done) = (0, 0);
    for (entries, snapshots) in histories() {
        for is_bottom in [false, true] {
            match kept(&entries, &snapshots, is_bottom) {
                Ok(kept) => {
                    assert!(!is_seen(&entries, &kept, &snapshots), "{entries:?} at {snapshots:?}: {kept:?}");
                    assert!(entries.iter().all(|(_, kind)| *kind != NEWER), "{entries:?} passed");
                    done += 1;
                }
                Err(unresolved) => {
                    assert_eq!(unresolved, Unresolved(NEWER));
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && done > 100, "{refused} refused, {done} done");
}

/// The search would notice a program that passes what it does not know: operands get lost.
#[test]
fn a_program_that_takes_operands_for_puts_loses_them() {
    let lost = histories().into_iter().find(|(entries, snapshots)| {
        is_seen(entries, &kept_by_a_careless_one(entries, snapshots, false), snapshots)
    });
    assert_eq!(lost, Some((vec![(2, NEWER), (1, 1)], vec![])), "the shortest history that loses");
}

/// Without the operator operands stay, and a value that has expired below them is a delete: what
/// asks for another compaction is gone after one.
#[test]
fn what_has_expired_below_operands_is_a_delete_whether_they_fold_or_not() {
    use tombolo_format::expiry::join_expiring;

    for (settled_ms, base) in [(99, EntryKind::ExpiringPut), (100, EntryKind::Delete)] {
        let mut retention = Retention::new(Moments { snapshots: Vec::new(), settled_ms }, Judge::default());
        for (number, kind, value) in [
            (2, EntryKind::Merge, b"operand".to_vec()),
            (1, EntryKind::ExpiringPut, join_expiring(b"v", 100)),
        ] {
            let trailer = Trailer::new(SequenceNumber(number), kind);
            assert_eq!(retention.take(b"key", trailer, || value.into(), |_| true), Ok(Taken::Held));
        }
        let kept = retention.release(None, |_| true);
        let kinds: Vec<_> = kept.iter().filter_map(|(trailer, _)| trailer.kind()).collect();
        assert_eq!(kinds, [EntryKind::Merge, base]);
    }
}

/// A moment needs more as long as it sees nothing, and then has the answer or refuses.
#[test]
fn a_moment_sees_the_newest_that_is_no_newer() {
    let moment = Moment(SequenceNumber(5));
    assert_eq!(moment.feed(trailer((6, NEWER))), Ok(Answer::More), "what it does not see it need not know");
    assert_eq!(moment.feed(trailer((5, 1))), Ok(Answer::Value));
    assert_eq!(moment.feed(trailer((4, 2))), Ok(Answer::Absent));
    assert_eq!(moment.feed(trailer((5, NEWER))), Err(Unresolved(NEWER)));
    let error = Unresolved(NEWER).at("table 7");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("kind 100") && text.contains("table 7"), "{text}");
}

/// Operands without bytes take memory as well.
#[test]
fn no_chain_of_operands_is_held_as_a_whole() {
    const HELD_BYTES_MAX: u64 = 16 << 20;
    let mut retention = Retention::new(Moments::default(), Judge::default());
    for number in (1..HELD_BYTES_MAX).rev() {
        let trailer = Trailer::new(SequenceNumber(number), EntryKind::Merge);
        if retention.is_due(b"key", trailer) {
            let held = retention.release(Some(b"key"), |_| true).len() as u64;
            assert!(held * 32 <= HELD_BYTES_MAX, "{held} entries were held");
            return;
        }
        assert_eq!(retention.take(b"key", trailer, Bytes::new, |_| true), Ok(Taken::Held));
    }
    panic!("all of them are held");
}

#[cfg(feature = "mutants")]
#[test]
fn kinds_that_are_taken_for_puts_are_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::UnknownKindTakenForPut,
        an_older_program_refuses_or_harms_nothing,
    );
}
