use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tombolo_format::key::{EntryKind, SequenceNumber};

use super::*;
use crate::memtable::{Memtable, MemtableWriter};

/// A version: its key, its number, and in which source it lies.
type Version = (Vec<u8>, usize);

fn sources(versions: &[Version], count: usize) -> Vec<Source> {
    let mut memtables: Vec<(Arc<Memtable>, MemtableWriter)> = (0..count)
        .map(|_| Memtable::create(&crate::budget::MemoryBudget::of_any_size(1 << 30), 1 << 20))
        .collect();
    for (index, (key, source)) in versions.iter().enumerate() {
        let writer = &mut memtables[source % count].1;
        writer.reserve(MemtableWriter::entry_bytes(key.len(), 8), 1).unwrap();
        let trailer = Trailer::new(SequenceNumber(index as u64 + 1), EntryKind::Put);
        writer.insert(0, key, trailer, &index.to_le_bytes());
    }
    memtables
        .iter()
        .filter_map(|(memtable, _)| memtable.list(0))
        .map(|list| Source::Memtable(list.cursor()))
        .collect()
}

fn entry(merge: &Merge) -> Option<(Vec<u8>, u64)> {
    merge.entry().map(|(key, trailer)| (key.to_vec(), trailer.sequence().0))
}

/// Keys that tie in their first bytes, and some that are prefixes of others.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        (0u8..4, 0u8..4).prop_map(|(a, b)| [&b"longer-than-8-bytes-"[..], &[a, b]].concat())
    ]
}

proptest! {
    #[test]
    fn a_merge_is_the_sorted_union(
        versions in prop::collection::vec((key(), 0..9usize), 0..60),
        count in 1..9usize,
        targets in prop::collection::vec((key(), 0..70u64), 0..6),
    ) {
        let all: BTreeMap<_, _> = versions.iter().enumerate().map(
            |(index, (key, _))| ((key.clone(), u64::MAX - index as u64 - 1), ())
        ).collect();
        let all: Vec<_> = all.into_keys().map(|(key, number)| (key, u64::MAX - number)).collect();
        let mut merge = Merge::new(sources(&versions, count));
        let _ = merge.try_first().unwrap();
        for expected in &all {
            assert_eq!(entry(&merge).as_ref(), Some(expected));
            let _ = merge.try_next().unwrap();
        }
        assert_eq!(entry(&merge), None);
        let _ = merge.try_last().unwrap();
        for expected in all.iter().rev() {
            assert_eq!(entry(&merge).as_ref(), Some(expected));
            let _ = merge.try_prev().unwrap();
        }
        assert_eq!(entry(&merge), None);
        for (key, number) in targets {
            let at = all.partition_point(
                |(found, version)| *found < key || *found == key && *version > number
            );
            let trailer = Trailer::seek(SequenceNumber(number));
            let _ = merge.try_seek(&key, trailer).unwrap();
            for expected in all[at..].iter().map(Some).chain([None]).take(5) {
                assert_eq!(entry(&merge).as_ref(), expected);
                let _ = merge.try_next().unwrap();
            }
            let _ = merge.try_seek_before(&key, trailer).unwrap();
            for expected in all[..at].iter().rev().map(Some).chain([None]).take(5) {
                assert_eq!(entry(&merge).as_ref(), expected);
                let _ = merge.try_prev().unwrap();
            }
            let _ = merge.try_first().unwrap();
            if entry(&merge).is_some_and(|(found, version)| found < key || found == key && version > number) {
                let _ = merge.try_skip_to(&key, trailer).unwrap();
                assert_eq!(entry(&merge).as_ref(), all.get(at));
            }
        }
    }
}
