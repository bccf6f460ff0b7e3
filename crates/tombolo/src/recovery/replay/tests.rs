//! What was replayed with the help of other threads is what was replayed without.

use bytes::BytesMut;
use proptest::prelude::*;
use tombolo_env::simulated::World;
use tombolo_format::batch::BatchBuilder;
use tombolo_format::key::EntryKind;

use super::*;
use crate::memtable::refusing::REFUSED;

const MEMTABLE_BYTES: u64 = 1 << 20;

/// (key, sequence number, value), as memtables list them.
type Version = (Vec<u8>, u64, Vec<u8>);

fn replay() -> Replay {
    let budget = MemoryBudget::new(64 << 20).expect("a budget");
    let created = "default".to_owned();
    let known = Known {
        name: created,
        stream: MAIN_STREAM,
        options: tombolo_format::manifest::KeyspaceOptions::default(),
        flushed: SequenceNumber::ZERO,
    };
    let mut replay = Replay::new(&State::default(), &budget, MEMTABLE_BYTES).expect("memory");
    replay.keyspaces.insert(0, known);
    (replay.next_keyspace, replay.manifest_keyspaces) = (1, 1);
    replay
}

/// One put each, one after another in one memory, in runs of that many.
fn runs(puts: &[(Vec<u8>, Vec<u8>)], run_entries: usize) -> Vec<LogRun> {
    let (mut memory, mut entries) = (BytesMut::new(), Vec::new());
    for (first_sequence, (key, value)) in (1..).zip(puts) {
        let mut batch = BatchBuilder::new();
        batch.push(EntryKind::Put, 0, key, value).expect("within limits");
        let start = memory.len();
        memory.extend_from_slice(batch.payload());
        entries.push(RunEntry {
            stream: MAIN_STREAM,
            first_sequence,
            count: 1,
            payload: start..memory.len(),
            end: LogOffset(first_sequence),
        });
    }
    let memory = memory.freeze();
    entries
        .chunks(run_entries)
        .map(|some| LogRun { memory: memory.clone(), entries: some.to_vec() })
        .collect()
}

async fn replay_all(replay: &mut Replay, runs: &[LogRun]) -> Result<()> {
    for run in runs {
        let mut at = 0;
        while at < run.entries.len() {
            replay.make_way().await?;
            let (count, failed) = replay.some_of(run, at);
            failed.map_or(Ok(()), Err)?;
            at += count;
        }
    }
    replay.rejoin().await?;
    replay.settle()
}

fn listed(memtable: &Memtable) -> Vec<Version> {
    let mut all = Vec::new();
    for (_, list) in memtable.lists() {
        let mut cursor = list.cursor();
        cursor.first();
        while let Some(entry) = cursor.entry() {
            all.push((entry.key.to_vec(), entry.trailer.sequence().0, entry.value.to_vec()));
            cursor.next();
        }
    }
    all
}

/// Of all memtables, oldest first: each with the last sequence number that it is to have, if it is
/// full.
fn found(replay: &mut Replay) -> Vec<(Option<u64>, Vec<Version>)> {
    let active = Arc::clone(replay.memtable().expect("memory"));
    let full = replay.take_full();
    let mut found: Vec<_> =
        full.iter().map(|full| (Some(full.last_sequence.0), listed(&full.memtable))).collect();
    found.push((None, listed(&active)));
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever came, in whatever runs, and whichever thread was first at each turn: every memtable
    /// holds what came between the last of the one before and its own last, in its order.
    #[test]
    fn what_other_threads_put_in_is_all_that_came(
        seed in any::<u64>(),
        count in 1..9000_usize,
        value_bytes in 0..300_usize,
        run_entries in 1..600_usize
    ) {
        let put = |number: usize| {
            let key = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 50;
            (key.to_be_bytes().to_vec(), vec![number.to_le_bytes()[0]; value_bytes])
        };
        let puts: Vec<_> = (0..count).map(put).collect();
        let world = World::new(seed);
        let env = world.process("engine").env();
        let mut helped = replay().helped_by(&env);
        let replayed = world.run_until(async { replay_all(&mut helped, &runs(&puts, run_entries)).await });
        prop_assert!(matches!(replayed, Ok(())));
        let mut begin = 0;
        for (last, versions) in found(&mut helped) {
            let last = last.unwrap_or(count as u64);
            let mut expected: Vec<Version> = (begin + 1..=last)
                .map(|sequence| {
                    let (key, value) = &puts[usize::try_from(sequence - 1).expect("few")];
                    (key.clone(), sequence, value.clone())
                })
                .collect();
            expected.sort_by(|one, other| (&one.0, other.1).cmp(&(&other.0, one.1)));
            prop_assert!(versions == expected, "the memtable up to {last}");
            begin = last;
        }
        prop_assert_eq!(begin, count as u64);
    }
}

#[test]
fn what_waits_goes_to_another_thread_and_no_memtable_takes_more_than_its_own() {
    let puts: Vec<_> = (0..20_000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 100])).collect();
    let world = World::new(1);
    let env = world.process("engine").env();
    let mut replay = replay().helped_by(&env);
    let (mut parts, mut most) = (0, 0);
    let replayed = world.run_until(async {
        for run in runs(&puts, 64) {
            let mut at = 0;
            while at < run.entries.len() {
                let waited = replay.pending.bytes();
                replay.make_way().await?;
                parts += usize::from(replay.pending.bytes() < waited && replay.writer.bytes_away().is_some());
                at += replay.some_of(&run, at).0;
                most = most.max(replay.pending.bytes());
            }
        }
        replay.rejoin().await
    });
    assert!(matches!(replayed, Ok(())));
    assert!(parts >= 20 && most < 66 << 10, "{parts} parts, and {most} bytes waited at most");
    let used: Vec<u64> = replay.take_full().iter().map(|full| full.memtable.used_bytes()).collect();
    assert!(
        used.len() >= 2 && used.iter().all(|used| *used < MEMTABLE_BYTES + MEMTABLE_BYTES / 8),
        "{used:?}"
    );
}

/// Whole or not at all: neither what comes before it in its batch nor the entry itself.
#[test]
fn an_entry_of_a_kind_that_nobody_knows_is_refused_with_its_batch() {
    let mut batch = BatchBuilder::new();
    for key in [&b"a"[..], b"b"] {
        batch.push(EntryKind::Put, 0, key, b"v").expect("within limits");
    }
    for kind in (3..64_u8).chain([255]).filter(|kind| EntryKind::from_byte(*kind).is_none()) {
        // The second of two operations, each with a key and a value of one byte.
        let mut several = batch.payload().to_vec();
        several[8 + 12 + 2] = kind;
        let single = [&[2, kind, 1, 0, 0, 0, 0, 0][..], b"kv"].concat();
        for (payload, count) in [(several, 2), (single, 1)] {
            let mut replay = replay();
            let entry = LogEntry { stream: MAIN_STREAM, first_sequence: 1, count, payload: payload.into() };
            let error = replay.entry(&entry).expect_err("nobody knows it");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(&format!("an entry of kind {kind}")), "{error}");
            assert_eq!(found(&mut replay), [(None, Vec::new())], "kind {kind}");
        }
    }
}

#[test]
fn an_entry_that_does_not_follow_is_said_and_what_came_before_it_is_there() {
    let puts: Vec<_> = (0..100_u32).map(|number| (number.to_be_bytes().to_vec(), Vec::new())).collect();
    let mut runs = runs(&puts, 100);
    runs[0].entries[60].first_sequence += 1;
    let mut replay = replay();
    let (count, error) = replay.some_of(&runs[0], 0);
    assert_eq!((count, error.map(|error| error.kind())), (60, Some(ErrorKind::Corrupt)));
    assert_eq!(found(&mut replay)[0].1.len(), 60);
}

fn entry(stream: u32, keyspace: u32, creates: bool) -> LogEntry {
    let mut batch = BatchBuilder::new();
    let options = tombolo_format::manifest::KeyspaceOptions::default();
    let pushed = if creates {
        batch.push_create_keyspace(keyspace, "new", stream, &options)
    } else {
        batch.push(EntryKind::Put, keyspace, b"key", b"value")
    };
    pushed.expect("within limits");
    LogEntry { stream, first_sequence: 1, count: 1, payload: Bytes::copy_from_slice(batch.payload()) }
}

#[test]
fn what_is_of_another_stream_than_its_lane_is_damage() {
    let main = || {
        let mut main = replay();
        main.keyspaces.insert(1, Known { stream: 7, ..main.keyspaces[&0].clone() });
        main.next_keyspace = 2;
        main
    };
    let of_seven = || main().of_stream(7, MEMTABLE_BYTES);
    assert_eq!(main().streams(), [7].into());
    assert!(main().entry(&entry(0, 0, false)).is_ok() && main().entry(&entry(0, 2, true)).is_ok());
    assert!(of_seven().entry(&entry(7, 1, false)).is_ok());
    let damage = [
        main().entry(&entry(7, 0, false)),
        main().entry(&entry(0, 1, false)),
        of_seven().entry(&entry(0, 1, false)),
        of_seven().entry(&entry(7, 2, true)),
        of_seven().entry(&entry(7, 2, false)),
    ];
    for found in damage {
        assert_eq!(found.expect_err("of another stream").kind(), ErrorKind::Corrupt);
    }
    // Dropped by the main log, and passed over.
    assert!(of_seven().entry(&entry(7, 0, false)).is_ok());
}

#[cfg(feature = "mutants")]
#[test]
fn entries_of_another_stream_that_are_replayed() {
    use tombolo_storage::mutant::notices;
    notices(Mutant::ForeignEntryReplayed, what_is_of_another_stream_than_its_lane_is_damage);
}

/// So many entries that another thread has a part of them, and has not begun with it.
async fn given_away(replay: &mut Replay, runs: &[LogRun]) {
    for run in runs {
        replay.make_way().await.expect("memory");
        if replay.writer.bytes_away().is_some() {
            return;
        }
        let (count, failed) = replay.some_of(run, 0);
        assert!(count == run.entries.len() || replay.has_share());
        assert!(failed.is_none());
    }
    panic!("too few");
}

#[test]
fn what_another_thread_could_not_put_in_ends_the_replay() {
    let puts: Vec<_> = (0..2000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 100])).collect();
    let world = World::new(1);
    let env = world.process("engine").env();
    for way_is_made in [false, true] {
        let mut replay = replay().helped_by(&env);
        let replayed = world.run_until(async {
            given_away(&mut replay, &runs(&puts, 50)).await;
            REFUSED.set(true);
            let replayed = if way_is_made {
                replay_all(&mut replay, &runs(&puts[..0], 50)).await
            } else {
                replay.rejoin().await
            };
            REFUSED.set(false);
            replayed
        });
        assert_eq!(replayed.expect_err("no memory").kind(), ErrorKind::Busy);
        // Nobody takes the rest of it for all.
        assert!(world.run_until(replay.rejoin()).is_err());
    }
}

#[test]
fn a_thread_that_ends_with_its_part_ends_the_replay() {
    let puts: Vec<_> = (0..2000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 100])).collect();
    let world = World::new(1);
    let process = world.process("engine");
    let mut replay = replay().helped_by(&process.env());
    world.run_until(given_away(&mut replay, &runs(&puts, 50)));
    process.kill();
    for _ in 0..2 {
        assert!(world.run_until(replay.rejoin()).is_err());
    }
}
