use super::*;
use crate::checksum::crc32c;
use crate::fuzzing::seeds;

#[test]
fn a_job_and_its_answers_are_read_as_they_were_written() {
    for (name, bytes) in seeds::all().into_iter().filter(|(name, _)| *name == "compaction") {
        let job = decode_job(&bytes).map(|job| encode_job(&job));
        let answer = decode_job_answer(&bytes).map(|answer| encode_job_answer(&answer));
        let worker = WorkerStatus::decode(&bytes).map(|worker| worker.encode());
        let is_same = [job, answer, worker].contains(&Ok(Ok(bytes)));
        assert!(is_same, "{name}");
    }
}

#[test]
fn each_attempt_at_a_job_has_names_of_its_own() {
    let bytes = seeds::a_compaction_job();
    let (one, first) = with_attempt(&bytes, 1).unwrap();
    let (other, second) = with_attempt(&bytes, 2).unwrap();
    assert_eq!(attempt_of(&first).unwrap(), one);
    assert_eq!(decode_job(&second).unwrap().attempt, other);
    assert_eq!(
        CompactionJob { attempt: one, ..decode_job(&second).unwrap() },
        decode_job(&first).unwrap(),
        "nothing else differs"
    );
    let mut names: Vec<_> = (0..100).flat_map(|number| [one.name(number), other.name(number)]).collect();
    assert!(names.iter().all(|name| name.epoch == one.epoch));
    assert_eq!(one.name(7), one.name(7));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 200);
}

#[test]
fn counts_that_contradict_each_other_are_told() {
    let tally =
        Tally { read: 10, hidden: 1, superseded: 2, folded: 3, made: 1, filtered: 1, ..Tally::default() };
    assert_eq!(tally.balanced(), Some(4));
    assert_eq!(Tally { hidden: 9, ..tally }.balanced(), None);
    assert_eq!(Tally { read_sum: 5, gone_sum: 7, made_sum: 3, ..tally }.written_sum(), 1);
    let mut twice = tally;
    twice.add(&tally);
    assert_eq!(twice.balanced(), Some(8));
}

#[test]
fn what_is_no_job_is_refused() {
    let job = seeds::a_compaction_job();
    assert!(decode_job_answer(&job).is_err(), "a job is no answer");
    for at in 0..job.len() {
        let mut damaged = job.clone();
        damaged[at] ^= 1;
        assert!(decode_job(&damaged).is_err(), "byte {at}");
        assert!(decode_job(&job[..at]).is_err(), "{at} bytes");
    }
    let mut newer = job;
    newer[8] = 2;
    assert!(matches!(decode_job(&with_checksum(newer)), Err(FormatError::Newer { .. })));
}

fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
    let end = message.len() - 4;
    let checksum = crc32c(&message[..end]).to_le_bytes();
    message[end..].copy_from_slice(&checksum);
    message
}

/// How many there are is looked at before any of them is.
#[test]
fn counts_are_bounded_before_what_they_count_is_read() {
    let job = seeds::a_compaction_job();
    let place = decode_job(&job).unwrap().place.len();
    let mut many = job;
    let needs_at = HEADER_BYTES + 40 + 4 + place;
    many[needs_at..needs_at + 4].copy_from_slice(&(JOB_NEEDS_MAX as u32 + 1).to_le_bytes());
    let error = decode_job(&with_checksum(many)).unwrap_err();
    assert!(matches!(error, FormatError::Damaged { offset, .. } if offset == needs_at as u64), "{error}");
    let worker = WorkerStatus { abilities: vec!["operator add_u64@1".to_owned()], ..WorkerStatus::default() };
    let mut many = worker.encode().unwrap();
    many[40..44].copy_from_slice(&(ABILITIES_MAX + 1).to_le_bytes());
    let error = WorkerStatus::decode(&many).unwrap_err();
    assert!(matches!(error, FormatError::Damaged { offset: 40, .. }), "{error}");
}
