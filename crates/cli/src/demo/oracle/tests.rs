use super::super::writer::journal_key;
use super::*;

/// Two writers: the first announced 4 writes and was acknowledged 2 of them before the second took
/// over; the second wrote `a` again.
fn oracle() -> Oracle {
    let mut oracle = Oracle::default();
    let now = Instant::now();
    for (sequence, path) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
        oracle.hear(1, intent(sequence, path, 1), now);
    }
    for sequence in [1, 2] {
        oracle.hear(1, Message::Acknowledged { sequence, latency_nanos: 1000 }, now);
    }
    oracle.hear(2, Message::Opened { epoch: 2, open_nanos: 5, replayed_bytes: 6 }, now);
    oracle.taken_over(1);
    oracle.hear(1, intent(5, "d", 1), now);
    oracle.hear(1, Message::Refused { sequence: 5 }, now);
    oracle.hear(2, intent(1, "a", 2), now);
    oracle.hear(2, Message::Acknowledged { sequence: 1, latency_nanos: 1000 }, now);
    oracle
}

fn record(sequence: u64, writer: u32) -> Vec<u8> {
    format!("record {sequence} of {writer} ").into_bytes()
}

fn intent(sequence: u64, path: &str, writer: u32) -> Message {
    Message::Intent { sequence, record: record(sequence, writer), path: path.as_bytes().to_vec() }
}

/// Reads back journal entries (writer, sequence, path) and files (path, writer, sequence of its
/// record).
fn read_back(journal: &[(u32, u64, &str)], files: &[(&str, u32, u64)]) -> Verdict {
    let mut oracle = oracle();
    let mut check = Check::new(&mut oracle);
    for (writer, sequence, path) in journal {
        check.journal(
            &journal_key(*writer, *sequence),
            &[record(*sequence, *writer), path.as_bytes().to_vec()].concat(),
        );
    }
    for (path, writer, sequence) in files {
        check.file(path.as_bytes(), &record(*sequence, *writer));
    }
    check.finish()
}

fn judge(journal: &[(u32, u64, &str)], files: &[(&str, u32, u64)]) -> (u64, u64) {
    let verdict = read_back(journal, files);
    (verdict.lost.count, verdict.wrong.count)
}

const ACKNOWLEDGED: [(u32, u64, &str); 3] = [(1, 1, "a"), (1, 2, "b"), (2, 1, "a")];

#[test]
fn what_was_acknowledged_is_enough() {
    assert_eq!(judge(&ACKNOWLEDGED, &[("a", 2, 1), ("b", 1, 2)]), (0, 0));
}

#[test]
fn what_was_announced_before_the_takeover_may_be_there_in_order() {
    let journal = [(1, 1, "a"), (1, 2, "b"), (1, 3, "a"), (1, 4, "c"), (2, 1, "a")];
    assert_eq!(judge(&journal, &[("a", 2, 1), ("b", 1, 2), ("c", 1, 4)]), (0, 0));
    let gap = [(1, 1, "a"), (1, 2, "b"), (1, 4, "c"), (2, 1, "a")];
    assert_eq!(judge(&gap, &[("a", 2, 1), ("b", 1, 2), ("c", 1, 4)]), (0, 1));
}

#[test]
fn a_lost_write_is_found_even_if_its_path_was_written_again() {
    assert_eq!(judge(&[(2, 1, "a")], &[("a", 2, 1)]), (2, 0));
    assert_eq!(judge(&ACKNOWLEDGED[..2], &[("a", 1, 1), ("b", 1, 2)]), (1, 0));
}

#[test]
fn a_write_of_the_stale_writer_after_the_takeover_is_wrong() {
    let journal = [(1, 1, "a"), (1, 2, "b"), (1, 3, "a"), (1, 4, "c"), (1, 5, "d"), (2, 1, "a")];
    assert_eq!(judge(&journal, &[("a", 2, 1), ("b", 1, 2), ("c", 1, 4), ("d", 1, 5)]), (0, 1));
}

#[test]
fn a_stale_acknowledgement_is_wrong() {
    let mut oracle = oracle();
    oracle.hear(1, Message::Acknowledged { sequence: 5, latency_nanos: 1 }, Instant::now());
    assert_eq!(Check::new(&mut oracle).finish().wrong.count, 1);
}

#[test]
fn other_content_half_batches_and_strangers_are_wrong() {
    // The newest record of `a` is the second writer's.
    assert_eq!(judge(&ACKNOWLEDGED, &[("a", 1, 1), ("b", 1, 2)]), (0, 1));
    // `files` without `b`: half a batch.
    assert_eq!(judge(&ACKNOWLEDGED, &[("a", 2, 1)]), (0, 1));
    // A record nobody wrote.
    assert_eq!(judge(&ACKNOWLEDGED, &[("a", 2, 1), ("b", 1, 2), ("x", 1, 1)]), (0, 1));
    // A journal entry nobody announced, and one of a writer that never was.
    assert_eq!(
        judge(&[(1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "b")], &[("a", 2, 1), ("b", 1, 2)]),
        (0, 1)
    );
    assert_eq!(
        judge(&[(1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (9, 1, "b")], &[("a", 2, 1), ("b", 1, 2)]),
        (0, 1)
    );
    // Another path under a right key.
    assert_eq!(judge(&[(1, 1, "a"), (1, 2, "x"), (2, 1, "a")], &[("a", 2, 1), ("b", 1, 2)]), (0, 1));
}
