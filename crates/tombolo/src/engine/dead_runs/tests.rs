use super::*;

/// Keys of the histories: one byte each.
const KEYS: u8 = 10;

fn key(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[number])
}

/// What a key was given.
#[derive(Clone, Copy, Debug)]
enum Given {
    Value,
    /// Up to this time.
    Until(u64),
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u8,
    number: u64,
    given: Given,
    /// Of the first view that holds it.
    generation: u64,
}

/// A database of few keys of which nothing is forgotten, and who reads it.
#[derive(Debug, Default)]
struct History {
    runs: DeadRuns,
    entries: Vec<Entry>,
    last: u64,
    generation: u64,
    now_ms: u64,
    readers: Vec<LooksFrom>,
    /// Keys that runs have answered for.
    passed: u64,
    steps: Vec<String>,
}

impl History {
    fn newest(&self, key: u8, from: LooksFrom) -> Option<&Entry> {
        let seen = |entry: &&Entry| {
            entry.key == key && entry.number <= from.sequence.0 && entry.generation <= from.generation
        };
        self.entries.iter().filter(seen).max_by_key(|entry| entry.number)
    }

    fn is_dead(&self, key: u8, from: LooksFrom) -> bool {
        match self.newest(key, from).map(|entry| entry.given) {
            Some(Given::Value) => false,
            Some(Given::Until(end)) => end <= from.judged_ms,
            Some(Given::Nothing) | None => true,
        }
    }

    /// As a commit does.
    fn commit(&mut self, key: u8, given: Given) {
        if self.runs.is_any() {
            self.runs.take_note(self.last, self.generation);
            if !matches!(given, Given::Nothing) {
                self.runs.cut(0, &[key]);
            }
        }
        self.last += 1;
        self.entries.push(Entry { key, number: self.last, given, generation: self.generation });
    }

    fn rotate(&mut self) {
        self.runs.take_along(self.last, (self.generation, self.generation + 1));
        self.generation += 1;
    }

    fn ingest(&mut self, key: u8) {
        self.last += 1;
        self.generation += 1;
        let (number, generation) = (self.last, self.generation);
        self.entries.push(Entry { key, number, given: Given::Value, generation });
        self.runs.forget(self.last, (self.generation - 1, self.generation));
    }

    /// Walks from a key on, as long as keys are dead, and tells of it.
    fn walk(&self, from: LooksFrom, first: u8) {
        let end = (first..KEYS).find(|key| !self.is_dead(*key, from)).unwrap_or(KEYS);
        let met = (first..end).filter_map(|key| self.newest(key, from));
        let since = met.map(|entry| entry.number).max().unwrap_or(0);
        let within = (key(first), (end < KEYS).then(|| key(end)));
        self.runs.learn(DeadRun::walked(0, within, (1000, SequenceNumber(since)), from));
    }

    /// Whether nothing lives where a run says so.
    fn ask(&mut self, from: LooksFrom, first: u8) {
        let Some(run) = self.runs.around(0, &[first], from) else { return };
        for number in (0..KEYS).filter(|number| run.contains(0, &[*number])) {
            assert!(
                self.is_dead(number, from),
                "{run:?} hides key {number} from {from:?}, after {:#?}",
                self.steps
            );
            self.passed += 1;
        }
    }

    fn step(&mut self, chance: &mut impl FnMut(u64) -> u64) {
        let some_key = u8::try_from(chance(u64::from(KEYS))).unwrap();
        let reader = usize::try_from(chance(3)).unwrap();
        self.readers.resize_with(3, || LooksFrom {
            sequence: SequenceNumber(0),
            judged_ms: 0,
            generation: 0,
        });
        let from = self.readers[reader];
        let what = chance(26);
        self.steps.push(format!("{what}: key {some_key}, {from:?}, last {}", self.last));
        match what {
            0 => self.commit(some_key, Given::Value),
            1 => self.commit(some_key, Given::Until(self.now_ms + chance(4))),
            2..6 => self.commit(some_key, Given::Nothing),
            6 => self.now_ms += 1,
            7 if chance(4) == 0 => self.rotate(),
            8 if chance(4) == 0 => self.ingest(some_key),
            // The view first, and the number and the time after; or a snapshot, whose number stays.
            9..12 => self.readers[reader].generation = self.generation,
            12..15 => {
                self.readers[reader].sequence = SequenceNumber(self.last);
                self.readers[reader].judged_ms = self.now_ms;
            }
            15..18 => {
                self.readers[reader] = LooksFrom {
                    sequence: SequenceNumber(self.last),
                    judged_ms: self.now_ms,
                    generation: self.generation,
                };
            }
            18..21 => self.walk(from, some_key),
            21 => {
                let end = some_key + 1 + u8::try_from(chance(u64::from(KEYS))).unwrap();
                let within = (key(some_key), (end < KEYS).then(|| key(end)));
                self.runs.watch(0, within, 1000, (self.last, self.generation));
            }
            22 => self.runs.end_watch(0),
            _ => self.ask(from, some_key),
        }
    }
}

/// Commits, rotations, ingests and time between reads that take their view, their number and their
/// time one after the other: no run hides a living key from any of them.
fn histories() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chance = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut passed = 0;
    for _ in 0..1500 {
        let mut history = History::default();
        (0..80).for_each(|_| history.step(&mut chance));
        passed += history.passed;
    }
    assert!(passed > 5000, "runs have answered for {passed} keys");
}

#[test]
fn no_run_hides_a_living_key() {
    histories();
}

#[cfg(feature = "mutants")]
#[test]
fn runs_that_hide_living_keys_are_noticed() {
    use tombolo_storage::mutant::notices;

    for mutant in [
        Mutant::DeadRunKeptOverPut,
        Mutant::DeadRunKeptOverIngest,
        Mutant::DeadRunHidesFromOlder,
        Mutant::DeadRunOfAnotherView,
        Mutant::DeadRunOpenedLate,
        Mutant::DeadRunByAnotherTime,
        Mutant::DeadRunOpenedByAnOlderWalk,
    ] {
        notices(mutant, histories);
    }
}

#[test]
fn what_is_learned_beside_commits_opens_with_the_second_walk() {
    let runs = DeadRuns::default();
    let from = |sequence| LooksFrom { sequence: SequenceNumber(sequence), judged_ms: 0, generation: 0 };
    let walked =
        |sequence| DeadRun::walked(0, (key(1), Some(key(9))), (100, SequenceNumber(3)), from(sequence));
    let end_at = |sequence| runs.around(0, &[2], from(sequence)).map(|run| run.end);
    runs.learn(walked(10));
    runs.take_note(12, 0);
    assert_eq!([2, 3, 10, 11, 12].map(|number| end_at(number).is_some()), [false, true, true, false, false]);
    runs.cut(0, &[7]);
    runs.learn(walked(12));
    // Up to where a commit has put something since.
    assert_eq!(end_at(100), Some(Some(key(7))));
    // None was between walk and note.
    runs.learn(walked(20));
    runs.take_note(20, 0);
    assert_eq!(end_at(100), Some(Some(key(9))));
}

#[test]
fn what_was_announced_opens_with_the_first_walk_piece_by_piece() {
    let runs = DeadRuns::default();
    let from = |sequence| LooksFrom { sequence: SequenceNumber(sequence), judged_ms: 0, generation: 0 };
    let walked = |end| {
        let within = (key(1), Some(key(end)));
        DeadRun::walked(0, within, (100, SequenceNumber(3)), from(10))
    };
    let end_at = |at| runs.around(0, &[at], from(100)).map(|run| run.end);
    runs.watch(0, (key(1), Some(key(9))), 100, (10, 0));
    assert_eq!(end_at(2), None, "nothing is known yet");
    // Commits go on beside the walk, and put something into its way.
    runs.take_note(11, 0);
    runs.cut(0, &[7]);
    runs.learn(walked(3));
    assert_eq!(end_at(2), Some(Some(key(3))));
    runs.take_note(12, 0);
    runs.learn(walked(6));
    runs.take_note(13, 0);
    runs.learn(walked(9));
    assert_eq!((end_at(2), end_at(7), end_at(8)), (Some(Some(key(7))), None, Some(Some(key(9)))));
    // What was not walked over is not watched for ever.
    runs.watch(0, (key(20), None), 100, (13, 0));
    runs.end_watch(0);
    assert_eq!(runs.runs.load().iter().filter(|run| run.is_claim()).count(), 0);
    assert_eq!(end_at(2), Some(Some(key(7))));
}

#[test]
fn runs_are_few_and_often_cut_ones_go() {
    let runs = DeadRuns::default();
    let from = LooksFrom { sequence: SequenceNumber(1), judged_ms: 0, generation: 0 };
    for number in 0..100_u8 {
        let within = (Bytes::copy_from_slice(&[number, 0]), Some(Bytes::copy_from_slice(&[number, 9])));
        runs.learn(DeadRun::walked(0, within, (100 + u64::from(number), SequenceNumber(1)), from));
    }
    assert_eq!(runs.runs.load().len(), RUNS_MAX);
    assert!(runs.around(0, &[99, 1], from).is_some(), "the longest stay");
    runs.forget(1, (0, 1));
    assert!(!runs.is_any());
    runs.learn(DeadRun::walked(0, (Bytes::new(), None), (10 * KEYS_PER_CUT, SequenceNumber(1)), from));
    runs.take_note(1, 0);
    for cuts in 0..=10 {
        let run = runs.around(0, &[1], from).unwrap_or_else(|| panic!("gone after {cuts} cuts"));
        runs.cut(0, &run.first);
    }
    assert!(!runs.is_any(), "cut for ever");
    let long = Bytes::from(vec![1; KEY_BYTES_MAX + 1]);
    runs.learn(DeadRun::walked(0, (long, None), (100, SequenceNumber(1)), from));
    assert!(!runs.is_any(), "of a long key");
}
