use std::collections::BTreeMap;

use proptest::prelude::*;
use tombolo_env::simulated::World;
use tombolo_format::compression::Compression;
use tombolo_format::key::EntryKind;
use tombolo_format::manifest::TableName;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{Epoch, Life, ObjectKind, Placement, Purpose};

use super::*;

mod ahead;
mod flight;

type Owned = (Vec<u8>, u64, Vec<u8>);

const NAME: TableName = TableName { epoch: 1, random: 0xab };

struct Fixture {
    world: World,
    inner: Arc<MemoryObjectStore>,
    tracer: Tracer,
    store: Arc<dyn ObjectStore>,
}

impl Fixture {
    fn new() -> Fixture {
        let world = World::new(7);
        let env = world.process("test").env();
        let inner = Arc::new(MemoryObjectStore::unnamed(&env));
        let tracer = Tracer::new(&env);
        let store =
            Arc::new(TraceObjectStore::new(Arc::clone(&inner) as Arc<dyn ObjectStore>, tracer.clone()));
        Fixture { world, inner, tracer, store }
    }

    fn run<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.world.run_until(future)
    }

    fn write(&self, entries: &[Owned], options: TableOptions) -> TableDescription {
        let new = NewTable { name: NAME, object: object(), identity: 0x1dea, level: 0, options };
        self.run(async {
            let mut writer = TableWriter::create(&*self.store, request(), new).await.unwrap();
            for entry in entries {
                writer.add(key(entry), &entry.2).unwrap();
                if writer.wants_flush() {
                    writer.flush().await.unwrap();
                }
            }
            writer.finish().await.unwrap().unwrap()
        })
    }

    fn table(&self, description: &TableDescription, cache_bytes: u64) -> Arc<Table> {
        let cache = BlockCache::new(cache_bytes);
        Arc::new(Table::new(description.clone(), object(), Arc::clone(&self.store), cache))
    }

    fn reads(&self) -> u64 {
        let reads = self.tracer.of_kind(RequestKind::Read).requests;
        self.tracer.reset();
        reads
    }

    /// Puts these bytes under the table's name in a store of its own, and opens them as the table.
    fn forged(&self, description: &TableDescription, bytes: Vec<u8>) -> Arc<Table> {
        let env = self.world.process("forger").env();
        let store = MemoryObjectStore::unnamed(&env);
        let placement = Placement::new(ObjectKind::Table, Life::Short);
        self.run(store.put_if_absent(request(), &object(), placement, bytes.into())).unwrap();
        Arc::new(Table::new(description.clone(), object(), Arc::new(store), BlockCache::new(1 << 20)))
    }

    fn bytes(&self) -> Vec<u8> {
        self.run(self.inner.read(request(), &object(), 0..u64::MAX)).unwrap().to_vec()
    }
}

fn object() -> ObjectName {
    ObjectName::new("0000000000000001/table/0000000000000001-00000000000000ab").unwrap()
}

fn request() -> Request {
    Request::new(Purpose::Get, Epoch(1))
}

fn key(entry: &Owned) -> InternalKey<'_> {
    let kind = if entry.2.is_empty() { EntryKind::Delete } else { EntryKind::Put };
    InternalKey::new(&entry.0, Trailer::new(SequenceNumber(entry.1), kind))
}

fn small() -> TableOptions {
    TableOptions { block_bytes: 128, partition_bytes: 128, ..TableOptions::default() }
}

fn many(count: u64, value_bytes: usize) -> Vec<Owned> {
    (0..count)
        .map(|index| {
            (format!("key-{index:08}").into_bytes(), index + 1, vec![index.to_le_bytes()[0] | 1; value_bytes])
        })
        .collect()
}

/// The newest entry that a snapshot sees, by the plain rule.
fn expected<'a>(entries: &'a [Owned], user_key: &[u8], snapshot: u64) -> Option<&'a Owned> {
    entries.iter().find(|entry| entry.0 == user_key && entry.1 <= snapshot)
}

fn entries(count: usize) -> impl Strategy<Value = Vec<Owned>> {
    let user_key = prop::collection::vec(0u8..3, 0..6);
    prop::collection::vec((user_key, 0u64..5, prop::collection::vec(any::<u8>(), 0..40)), 1..count).prop_map(
        |entries| {
            let sorted: BTreeMap<_, _> = entries
                .into_iter()
                .map(|(key, sequence, value)| ((key, u64::MAX - sequence), value))
                .collect();
            sorted.into_iter().map(|((key, sequence), value)| (key, u64::MAX - sequence, value)).collect()
        },
    )
}

/// Completes a step.
fn done(fixture: &Fixture, iterator: &mut TableIterator, step: Result<Step>) {
    if step.unwrap() == Step::Blocked {
        assert!(!iterator.valid());
        fixture.run(iterator.load()).unwrap();
    }
}

fn at<'a>(iterator: &'a TableIterator) -> Option<(InternalKey<'a>, &'a [u8])> {
    iterator.valid().then(|| (iterator.key(), iterator.value()))
}

#[test]
fn a_description_says_what_was_written() {
    let fixture = Fixture::new();
    let entries = vec![
        (b"a".to_vec(), 9, b"1".to_vec()),
        (b"b".to_vec(), 3, vec![]),
        (b"b".to_vec(), 2, b"2".to_vec()),
    ];
    let options = TableOptions { keyspace: 4, oldest_unix_seconds: 77, ..small() };
    let description = fixture.write(&entries, options);
    assert_eq!((description.keyspace, description.oldest_unix_seconds, description.level), (4, 77, 0));
    assert_eq!((description.first_key.as_ref(), description.last_key.as_ref()), (&b"a"[..], &b"b"[..]));
    assert_eq!(
        (description.first_sequence, description.last_sequence),
        (SequenceNumber(2), SequenceNumber(9))
    );
    assert_eq!((description.entries, description.deletes, description.identity), (3, 1, 0x1dea));
    assert_eq!(description.length, fixture.bytes().len() as u64);
    assert!(check_description(&description, &object()).is_ok());
    fixture.run(fixture.table(&description, 0).verify(request())).unwrap();
}

#[test]
fn nothing_added_leaves_no_object_and_neither_does_a_dropped_writer() {
    let fixture = Fixture::new();
    let new = NewTable { name: NAME, object: object(), identity: 1, level: 0, options: small() };
    fixture.run(async {
        let writer = TableWriter::create(&*fixture.store, request(), new.clone()).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), None);
        let mut writer = TableWriter::create(&*fixture.store, request(), new).await.unwrap();
        writer.add(InternalKey::new(b"k", Trailer::new(SequenceNumber(1), EntryKind::Put)), b"v").unwrap();
        let error = writer
            .add(InternalKey::new(&vec![b'l'; 70_000], Trailer::new(SequenceNumber(1), EntryKind::Put)), b"v")
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let error = writer.add(InternalKey::new(b"m", Trailer(0x1ff)), b"v").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "a kind of a newer version");
        writer.flush().await.unwrap();
        drop(writer);
        assert!(fixture.store.list(request(), "", None, 10).await.unwrap().objects.is_empty());
    });
}

#[test]
fn a_cold_get_takes_two_requests_and_a_warm_one_none() {
    let fixture = Fixture::new();
    let description = fixture.write(&many(5000, 100), TableOptions::default());
    let table = fixture.table(&description, 4 << 20);
    fixture.reads();
    let lookup = Lookup::new(b"key-00002500", SequenceNumber::MAX);
    assert!(matches!(table.try_get(&lookup).unwrap(), Probe::Miss));
    let hit = fixture.run(table.get(request(), &lookup)).unwrap().unwrap();
    assert_eq!((hit.value(), hit.trailer.sequence().0), (&[2500u64.to_le_bytes()[0] | 1; 100][..], 2501));
    assert_eq!(fixture.reads(), 2, "the tail with all filters and indexes, and the block");
    assert!(matches!(table.try_get(&lookup).unwrap(), Probe::Found(_)));
    let other = Lookup::new(b"key-00000001", SequenceNumber::MAX);
    assert!(matches!(table.try_get(&other).unwrap(), Probe::Miss));
    assert!(fixture.run(table.get(request(), &other)).unwrap().is_some());
    assert_eq!(fixture.reads(), 1, "the block");
    assert!(
        matches!(table.try_get(&Lookup::new(b"zzz", SequenceNumber::MAX)).unwrap(), Probe::Absent),
        "beyond the last key"
    );
    assert!(
        matches!(table.try_get(&Lookup::new(b"key-00002500", SequenceNumber(2500))).unwrap(), Probe::Absent),
        "not seen yet"
    );
    let absent = (0..1000).map(|index| format!("key-{index:08}x"));
    let passed = absent.filter(|key| {
        !matches!(table.try_get(&Lookup::new(key.as_bytes(), SequenceNumber::MAX)).unwrap(), Probe::Absent)
    });
    assert!(passed.count() < 50, "filters hold absent keys off");
    assert_eq!(fixture.reads(), 0);
}

/// All versions of each key, each looked for beside the one before, over many blocks.
fn older_versions_are_found_beside_newer_ones() {
    let fixture = Fixture::new();
    let versions: [u64; 6] = [1, 2, 30, 3, 1, 9];
    let mut entries = Vec::new();
    for (index, versions) in versions.into_iter().enumerate() {
        let of_key = |number| (format!("key-{index}").into_bytes(), number, vec![7; 20]);
        entries.extend((1..=versions).rev().map(of_key));
    }
    let description = fixture.write(&entries, small());
    let table = fixture.table(&description, 4 << 20);
    let mut beside = 0;
    for (index, versions) in versions.into_iter().enumerate() {
        let key = format!("key-{index}");
        let mut lookup = Lookup::new(key.as_bytes(), SequenceNumber::MAX);
        let mut seen = Vec::new();
        let anew = |lookup: &Lookup<'_>| match fixture.run(table.get(request(), lookup)).unwrap() {
            Some(hit) => Probe::Found(hit),
            None => Probe::Absent,
        };
        let mut probe = anew(&lookup);
        while let Probe::Found(hit) = probe {
            seen.push(hit.trailer.sequence().0);
            let below = SequenceNumber(hit.trailer.sequence().0 - 1);
            lookup.target = InternalKey::new(key.as_bytes(), Trailer::seek(below));
            probe = match table.try_get_older(hit, &lookup).unwrap() {
                Some(probe) => {
                    beside += 1;
                    probe
                }
                None => anew(&lookup),
            };
        }
        assert_eq!(seen, (1..=versions).rev().collect::<Vec<_>>(), "{key}");
    }
    assert!(beside > entries.len() / 2, "only {beside} of {} were answered by the block", entries.len());
}

#[test]
fn an_older_version_is_found_beside_a_newer_one() {
    older_versions_are_found_beside_newer_ones();
}

#[cfg(feature = "mutants")]
#[test]
fn older_versions_in_the_next_block_that_are_passed_over_are_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::OlderVersionsEndWithTheBlock,
        older_versions_are_found_beside_newer_ones,
    );
}

#[test]
fn a_table_with_a_large_tail_takes_three_requests_at_first() {
    let fixture = Fixture::new();
    let entries: Vec<Owned> =
        (0..70_000).map(|index| (format!("{index:032}").into_bytes(), 1, vec![1; 40])).collect();
    let description = fixture.write(
        &entries,
        TableOptions { block_bytes: 64, compression: Compression::None, ..TableOptions::default() },
    );
    let table = fixture.table(&description, 4 << 20);
    fixture.reads();
    for (index, requests) in [(17_000, 3), (17_000, 0), (17_001, 1), (69_999, 2)] {
        let user_key = format!("{index:032}");
        let hit = fixture
            .run(table.get(request(), &Lookup::new(user_key.as_bytes(), SequenceNumber::MAX)))
            .unwrap()
            .unwrap();
        assert_eq!(hit.into_value(), vec![1; 40]);
        assert_eq!(fixture.reads(), requests, "{index}");
    }
}

#[test]
fn scans_read_ahead_in_few_requests() {
    let fixture = Fixture::new();
    let entries = many(20_000, 100);
    let description =
        fixture.write(&entries, TableOptions { compression: Compression::None, ..TableOptions::default() });
    for fill_cache in [false, true] {
        let table = fixture.table(&description, 8 << 20);
        fixture.reads();
        let mut iterator = table.iterator(request(), fill_cache);
        let mut count = 0;
        let step = iterator.first();
        done(&fixture, &mut iterator, step);
        while iterator.valid() {
            assert_eq!(at(&iterator), Some((key(&entries[count]), entries[count].2.as_slice())));
            count += 1;
            let step = iterator.next();
            done(&fixture, &mut iterator, step);
        }
        assert_eq!(count, entries.len());
        let reads = fixture.reads();
        assert!(reads < 25, "{reads} requests for {} bytes", description.length);
        assert_eq!(table.cache.stats().insertions > 100, fill_cache);
    }
}

#[test]
fn errors_name_object_offset_expected_and_found() {
    let fixture = Fixture::new();
    let description = fixture.write(&many(200, 20), small());
    let mut bytes = fixture.bytes();
    bytes[10] ^= 1;
    let table = fixture.forged(&description, bytes);
    let error =
        fixture.run(table.get(request(), &Lookup::new(b"key-00000000", SequenceNumber::MAX))).unwrap_err();
    assert_eq!((error.kind(), error.object_name()), (ErrorKind::Corrupt, Some(object().as_str())));
    assert!(
        error.position().is_some_and(|at| at < 300)
            && error.expectation().is_some()
            && error.finding().is_some(),
        "{error}"
    );
    // Other blocks are read as ever.
    assert!(
        fixture
            .run(table.get(request(), &Lookup::new(b"key-00000190", SequenceNumber::MAX)))
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_missing_a_cut_and_a_foreign_object_are_typed_errors() {
    let fixture = Fixture::new();
    let description = fixture.write(&many(200, 20), small());
    let bytes = fixture.bytes();
    let lookup = Lookup::new(b"key-00000100", SequenceNumber::MAX);
    let elsewhere = ObjectName::new("elsewhere").unwrap();
    let missing =
        Arc::new(Table::new(description.clone(), elsewhere, Arc::clone(&fixture.store), BlockCache::new(0)));
    assert_eq!(fixture.run(missing.get(request(), &lookup)).unwrap_err().kind(), ErrorKind::Corrupt);
    for length in [0, 1, 95, 96, bytes.len() / 2, bytes.len() - 1] {
        let table = fixture.forged(&description, bytes[..length].to_vec());
        assert_eq!(
            fixture.run(table.get(request(), &lookup)).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{length} bytes"
        );
        assert_eq!(
            fixture.run(table.verify(request())).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{length} bytes"
        );
    }
    let other = TableDescription { features: 1 << 5, ..description.clone() };
    let error = fixture.run(fixture.forged(&other, bytes.clone()).get(request(), &lookup)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "the footer says less than the manifest: {error}");
    let error = fixture.run(fixture.forged(&other, bytes.clone()).verify(request())).unwrap_err();
    assert_eq!(error.expectation(), Some("the feature bits of its description, 0x20"), "{error}");
    let foreign = TableDescription { identity: 0x1deb, ..description };
    let error = fixture.run(fixture.forged(&foreign, bytes).get(request(), &lookup)).unwrap_err();
    assert_eq!(error.expectation(), Some("table 0x0000000000001deb"), "{error}");
}

/// Every byte of a table flipped in turn: an error, or all reads right.
#[test]
fn no_flipped_byte_gives_a_wrong_answer() {
    let fixture = Fixture::new();
    let entries = many(60, 10);
    let description = fixture.write(&entries, TableOptions { compression: Compression::None, ..small() });
    let bytes = fixture.bytes();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x11;
        let table = fixture.forged(&description, flipped);
        for entry in entries.iter().step_by(7) {
            match fixture.run(table.get(request(), &Lookup::new(&entry.0, SequenceNumber::MAX))) {
                Ok(hit) => {
                    assert_eq!(hit.map(|hit| hit.value().to_vec()), Some(entry.2.clone()), "byte {at}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}"),
            }
        }
        assert_eq!(fixture.run(table.verify(request())).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        let mut iterator = table.iterator(request(), true);
        let mut seen = 0;
        let walked: Result<()> = fixture.run(async {
            if iterator.first()? == Step::Blocked {
                iterator.load().await?;
            }
            while iterator.valid() {
                assert_eq!(iterator.key(), key(&entries[seen]), "byte {at}");
                seen += 1;
                if iterator.next()? == Step::Blocked {
                    iterator.load().await?;
                }
            }
            Ok(())
        });
        assert!(
            walked.is_err_and(|error| error.kind() == ErrorKind::Corrupt) || seen == entries.len(),
            "byte {at}"
        );
    }
}

/// A table of large values is verified, and its damage told, with one of them in memory at a time,
/// and that is charged.
#[test]
fn a_table_of_large_values_is_verified_in_pieces() {
    const VALUE_BYTES: usize = 1 << 20;
    let fixture = Fixture::new();
    let mut noise = 1_u64;
    let mut value = || {
        let mut next = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 56) as u8
        };
        (0..VALUE_BYTES).map(|_| next()).collect::<Vec<u8>>()
    };
    let entries: Vec<Owned> =
        (0..24).map(|number| (format!("key-{number:08}").into_bytes(), 1, value())).collect();
    let description = fixture.write(&entries, small());
    let table = fixture.table(&description, 0);
    let budget = Arc::clone(table.cache.budget());
    let before = budget.used_bytes();
    fixture.tracer.reset();
    fixture.run(table.verify(request())).unwrap();
    let read = fixture.tracer.of_kind(RequestKind::Read);
    assert!(
        read.bytes <= description.length + description.length / 8,
        "{} bytes read of {}",
        read.bytes,
        description.length
    );
    let most = 4 * VALUE_BYTES as u64;
    assert!(
        (VALUE_BYTES as u64..most).contains(&budget.peak_bytes()),
        "{} bytes charged",
        budget.peak_bytes()
    );
    assert_eq!(budget.used_bytes(), before, "all of it is given back");
    let mut bytes = fixture.bytes();
    bytes[VALUE_BYTES / 2] ^= 1;
    bytes[10 * VALUE_BYTES] ^= 1;
    let forged = fixture.forged(&description, bytes);
    assert_eq!(fixture.run(forged.damages(request())).unwrap().len(), 2);
    let peak = forged.cache.budget().peak_bytes();
    assert!(peak < most, "{peak} bytes charged");
    let parts =
        fixture.run(forged.parts(request(), |error| error.kind() == ErrorKind::Corrupt)).unwrap().unwrap();
    assert_eq!(parts.iter().filter(|part| matches!(part, Part::Lost { .. })).count(), 2);
}

/// Every way to read a table whose blocks need its dictionary.
#[test]
fn a_table_with_a_dictionary_reads_as_one_without() {
    let fixture = Fixture::new();
    let value = |index: u64| {
        let amount = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{{\"state\":\"shipped from the north\",\"amount_in_cents\":{amount}}}").into_bytes()
    };
    let entries: Vec<Owned> =
        (0..3000).map(|index| (format!("order-{index:08}").into_bytes(), index + 1, value(index))).collect();
    let options = TableOptions {
        block_bytes: 1 << 10,
        compression: Compression::Zstd,
        dictionary_bytes: 4 << 10,
        ..TableOptions::default()
    };
    let description = fixture.write(&entries, options);
    // With a cache, and without.
    for cache_bytes in [0, 1 << 20] {
        let table = fixture.table(&description, cache_bytes);
        let top = fixture.run(table.open(request())).unwrap();
        assert!(top.dictionary.is_some());
        let lookups: Vec<_> =
            entries.iter().step_by(37).map(|entry| Lookup::new(&entry.0, SequenceNumber::MAX)).collect();
        let hits = fixture.run(table.get_several(request(), &lookups)).unwrap();
        for (entry, (lookup, several)) in entries.iter().step_by(37).zip(lookups.iter().zip(hits)) {
            let hit = fixture.run(table.get(request(), lookup)).unwrap().unwrap();
            assert_eq!((hit.value(), several.unwrap().value()), (&entry.2[..], &entry.2[..]));
        }
        let mut iterator = table.iterator(request(), true);
        let step = iterator.first();
        done(&fixture, &mut iterator, step);
        for entry in &entries {
            assert_eq!(at(&iterator), Some((key(entry), &entry.2[..])));
            let step = iterator.next();
            done(&fixture, &mut iterator, step);
        }
        fixture.run(table.verify(request())).unwrap();
    }
    // Salvage reads blocks by themselves, of a table that it has not opened.
    let mut bytes = fixture.bytes();
    bytes[2000] ^= 1;
    let forged = fixture.forged(&description, bytes);
    assert_eq!(fixture.run(forged.damages(request())).unwrap().len(), 1);
    let forged = fixture.forged(&description, fixture.bytes());
    let parts =
        fixture.run(forged.parts(request(), |error| error.kind() == ErrorKind::Corrupt)).unwrap().unwrap();
    let sound = parts.iter().map(|part| if let Part::Sound { entries, .. } = part { *entries } else { 0 });
    assert_eq!(sound.sum::<u64>(), 3000);
}

#[test]
fn a_dropped_load_leaves_the_move_pending() {
    let fixture = Fixture::new();
    let entries = many(500, 20);
    let description = fixture.write(&entries, small());
    let mut iterator = fixture.table(&description, 0).iterator(request(), true);
    assert_eq!(iterator.seek(key(&entries[250])).unwrap(), Step::Blocked);
    drop(iterator.load());
    assert!(!iterator.valid());
    fixture.run(iterator.load()).unwrap();
    assert_eq!(at(&iterator).unwrap().0, key(&entries[250]));
}

#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, u64),
    SeekBefore(Vec<u8>, u64),
    Next(u8),
    Prev(u8),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let user_key = || prop::collection::vec(0u8..3, 0..6);
    let one = prop_oneof![
        Just(Move::First),
        Just(Move::Last),
        (user_key(), 0u64..6).prop_map(|(key, sequence)| Move::Seek(key, sequence)),
        (user_key(), 0u64..6).prop_map(|(key, sequence)| Move::SeekBefore(key, sequence)),
        (1u8..30).prop_map(Move::Next),
        (1u8..30).prop_map(Move::Prev),
    ];
    prop::collection::vec(one, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gets_find_what_a_snapshot_sees(
        entries in entries(120),
        block_bytes in 1usize..300,
        cache in prop_oneof![Just(0u64), Just(1 << 20)]
    ) {
        let fixture = Fixture::new();
        let description = fixture.write(&entries, TableOptions { block_bytes, ..small() });
        let table = fixture.table(&description, cache);
        for entry in &entries {
            for snapshot in 0..6 {
                for user_key in [entry.0.clone(), [&entry.0[..], &[1]].concat()] {
                    let lookup = Lookup::new(&user_key, SequenceNumber(snapshot));
                    let wanted = expected(&entries, &user_key, snapshot).map(
                        |entry| (entry.1, entry.2.clone())
                    );
                    let found = fixture.run(table.get(request(), &lookup)).unwrap();
                    prop_assert_eq!(
                        found.map(|hit| (hit.trailer.sequence().0, hit.value().to_vec())), wanted.clone()
                    );
                    match table.try_get(&lookup).unwrap() {
                        Probe::Found(hit) => prop_assert_eq!(
                            Some((hit.trailer.sequence().0, hit.into_value().to_vec())), wanted
                        ),
                        Probe::Absent => prop_assert_eq!(None, wanted),
                        Probe::Miss => prop_assert_eq!(cache, 0),
                    }
                }
            }
        }
    }

    #[test]
    fn iterators_move_as_a_sorted_list_does(
        entries in entries(150),
        moves in moves(),
        block_bytes in 1usize..300,
        partition_bytes in 1usize..200,
        cache in prop_oneof![Just(0u64), Just(1 << 20)],
        fill_cache: bool,
    ) {
        let fixture = Fixture::new();
        let description = fixture.write(&entries, TableOptions { block_bytes, partition_bytes, ..small() });
        let mut iterator = fixture.table(&description, cache).iterator(request(), fill_cache);
        let mut position = None;
        for one in moves {
            let count = if let Move::Next(count) | Move::Prev(count) = one { count } else { 1 };
            for _ in 0..count {
                let step = match &one {
                    Move::First => {
                        position = Some(0);
                        iterator.first()
                    }
                    Move::Last => {
                        position = entries.len().checked_sub(1);
                        iterator.last()
                    }
                    Move::Seek(user_key, sequence) => {
                        let target = InternalKey::new(user_key, Trailer::seek(SequenceNumber(*sequence)));
                        position = Some(entries.partition_point(|entry| key(entry) < target));
                        iterator.seek(target)
                    }
                    Move::SeekBefore(user_key, sequence) => {
                        let target = InternalKey::new(user_key, Trailer::seek(SequenceNumber(*sequence)));
                        position = entries.partition_point(|entry| key(entry) < target).checked_sub(1);
                        iterator.seek_before(target)
                    }
                    Move::Next(_) if iterator.valid() => {
                        position = position.map(|position| position + 1);
                        iterator.next()
                    }
                    Move::Prev(_) if iterator.valid() => {
                        position = position.and_then(|position| position.checked_sub(1));
                        iterator.prev()
                    }
                    _ => Ok(Step::Done),
                };
                done(&fixture, &mut iterator, step);
                let wanted = position.and_then(|position| entries.get(position)).map(
                    |entry| (key(entry), entry.2.as_slice())
                );
                prop_assert_eq!(at(&iterator), wanted);
                prop_assert_eq!(
                    wanted.map(|(_, value)| value.to_vec()),
                    iterator.valid().then(|| iterator.share_value().to_vec())
                );
            }
        }
    }
}

#[test]
fn several_keys_take_one_request_for_blocks_and_answer_as_single_gets_do() {
    let fixture = Fixture::new();
    let entries = many(20_000, 100);
    let description =
        fixture.write(&entries, TableOptions { compression: Compression::None, ..TableOptions::default() });
    let table = fixture.table(&description, 8 << 20);
    let single = fixture.table(&description, 8 << 20);
    let mut keys: Vec<Vec<u8>> = entries.iter().step_by(1700).map(|entry| entry.0.clone()).collect();
    let absent: Vec<_> = keys.iter().map(|key| [key, &b"x"[..]].concat()).collect();
    keys.extend(absent);
    keys.push(keys[3].clone());
    keys.extend([vec![], vec![0xff; 30]]);
    keys.sort();
    let lookups: Vec<_> = keys.iter().map(|key| Lookup::new(key, SequenceNumber::MAX)).collect();
    fixture.reads();
    let hits = fixture.run(table.get_several(request(), &lookups)).unwrap();
    let together = fixture.tracer.of_kind(RequestKind::ReadRanges).requests;
    assert_eq!((fixture.reads(), together), (1, 1), "the tail, and all blocks together");
    let mut near = Near::default();
    for (lookup, hit) in lookups.iter().zip(hits) {
        let expected = fixture.run(single.get(request(), lookup)).unwrap().map(Hit::into_value);
        let found = hit.map(Hit::into_value);
        assert_eq!(found, expected, "{lookup:?}");
        match table.try_get_near(lookup, &mut near, |_, _, value| value.to_vec()).unwrap() {
            NearProbe::Found(value) => assert_eq!(Some(value), expected.map(|value| value.to_vec())),
            NearProbe::Absent => assert_eq!(expected, None),
            NearProbe::Miss => panic!("{lookup:?} was just read"),
        }
    }
}
