use std::collections::BTreeMap;

use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{RecordKind, Writer, record_hash};
use tombolo_storage::Epoch;

use super::append::{Append, Appended};
use super::claim::{Claim, Claimed};
use super::follow::{Follow, Followed};
use super::load::{Load, Proof};
use super::open::{Open, OpenMode, Policy};
use super::truncate::Truncate;
use super::*;

const INCARNATION: Incarnation = Incarnation(1);

/// A store in which nothing goes wrong, but for what a test does to it.
#[derive(Default)]
struct Store {
    slots: BTreeMap<u64, Bytes>,
    snapshots: BTreeMap<u64, Vec<Edit>>,
    randoms: u128,
    asked: Vec<Effect>,
}

impl Store {
    fn perform(&mut self, effect: Effect) -> Answer {
        self.asked.push(effect.clone());
        match effect {
            Effect::NewestIncarnation => Answer::Newest(Some(1)),
            Effect::PutIncarnation(_) => Answer::Put(PutAnswer::Exists),
            Effect::NewestRecord(_) => Answer::Newest(self.slots.keys().next_back().copied()),
            Effect::ReadRecords(_, slots) => {
                Answer::Records(slots.map(|slot| self.slots.get(&slot).cloned()).collect())
            }
            Effect::ReadSnapshot(_, name) => Answer::Snapshot(self.snapshots.get(&name.slot).cloned()),
            Effect::PutRecord(_, slot, bytes) => {
                if self.slots.contains_key(&slot) {
                    return Answer::Put(PutAnswer::Exists);
                }
                self.slots.insert(slot, bytes);
                Answer::Put(PutAnswer::Created)
            }
            Effect::DeleteRecord(_, slot) => {
                self.slots.remove(&slot);
                Answer::Deleted
            }
            Effect::Random => {
                self.randoms += 1;
                Answer::Random(self.randoms)
            }
        }
    }

    fn run<M: Machine>(&mut self, mut machine: M) -> M::Output {
        let mut step = machine.begin();
        loop {
            match step {
                Step::Done(output) => return output,
                Step::Do(effect) => step = machine.step(self.perform(effect)),
            }
        }
    }

    /// Runs until `effects` effects were performed; the machine and its next effect.
    fn run_part<M: Machine>(&mut self, mut machine: M, effects: usize) -> (M, Effect) {
        let mut step = machine.begin();
        for _ in 0..effects {
            let Step::Do(effect) = step else { panic!("done too early") };
            step = machine.step(self.perform(effect));
        }
        let Step::Do(effect) = step else { panic!("done too early") };
        (machine, effect)
    }

    fn finish<M: Machine>(&mut self, mut machine: M, effect: Effect) -> M::Output {
        let mut step = Step::Do(effect);
        loop {
            match step {
                Step::Done(output) => return output,
                Step::Do(effect) => step = machine.step(self.perform(effect)),
            }
        }
    }

    fn load(&mut self) -> Result<Option<Tip>> {
        self.run(Load::new(INCARNATION, Proof::List))
    }

    fn claim(&mut self) -> Tip {
        let tip = self.load().unwrap().unwrap_or_else(|| Tip::empty(INCARNATION));
        match self.run(Claim::new(tip, Writer::default())) {
            Ok(Claimed::Effective(tip)) => tip,
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, tip: &Tip, kind: RecordKind) -> Tip {
        let epoch = tip.epoch();
        match self.run(Append::new(tip.clone(), epoch, kind)) {
            Ok(Appended::Committed(tip)) => tip,
            other => panic!("{other:?}"),
        }
    }

    fn edit(&mut self, tip: &Tip) -> Tip {
        let sequence = SequenceNumber(tip.slot);
        self.append(tip, RecordKind::Edits(vec![Edit::StreamReached { stream: 0, sequence }]))
    }

    fn snapshot(&mut self, tip: &Tip) -> Tip {
        self.snapshots.insert(tip.slot, tip.state.edits());
        let (slot, epoch, record_hash) = (tip.slot, tip.epoch().0, tip.hash);
        self.append(tip, RecordKind::Snapshot { slot, epoch, record_hash, random: 0, length: 0, checksum: 0 })
    }
}

/// A chain with two snapshots, the older of which names a state that is older than its record.
fn long_chain() -> (Store, Tip) {
    let mut store = Store::default();
    let mut tip = store.claim();
    for _ in 0..20 {
        tip = store.edit(&tip);
    }
    let base = tip.clone();
    store.snapshots.insert(base.slot, base.state.edits());
    tip = store.edit_twice(&tip);
    tip = store.edit_twice(&tip);
    let kind = RecordKind::Snapshot {
        slot: base.slot,
        epoch: base.epoch().0,
        record_hash: base.hash,
        random: 0,
        length: 0,
        checksum: 0,
    };
    tip = store.append(&tip, kind);
    for _ in 0..5 {
        tip = store.edit(&tip);
    }
    (store, tip)
}

impl Store {
    fn edit_twice(&mut self, tip: &Tip) -> Tip {
        let tip = self.edit(tip);
        self.edit(&tip)
    }
}

/// Whatever was truncated, the load finds the same state, and says the same of the tail.
#[test]
fn loads_from_a_snapshot() {
    let (mut store, tip) = long_chain();
    let snapshot = tip.snapshot.unwrap();
    assert!(snapshot.slot + 3 < tip.snapshot_slot, "edits went on while the snapshot was written");
    assert_eq!(store.load().unwrap().unwrap(), tip);
    assert_eq!(store.run(Truncate::new(INCARNATION, snapshot.slot)).unwrap(), 20);
    assert!(store.slots.contains_key(&1), "a claim is never deleted");
    let loaded = store.load().unwrap().unwrap();
    assert_eq!((&loaded, &*loaded.state, loaded.snapshot_slot), (&tip, &*tip.state, tip.snapshot_slot));
    assert_eq!(loaded.tail_records, tip.tail_records);
    assert_eq!(loaded.tail_records, tip.slot - snapshot.slot);
}

/// An interrupted truncation leaves a contiguous rest, which the next one finds without a list of
/// all claims.
#[test]
fn a_truncation_finishes_what_another_began() {
    let (mut store, tip) = long_chain();
    let base = tip.snapshot.unwrap().slot;
    let (_, next) = store.run_part(Truncate::new(INCARNATION, base), 9);
    assert!(matches!(next, Effect::DeleteRecord(_, slot) if slot > 5), "{next:?}");
    store.run(Truncate::new(INCARNATION, base)).unwrap();
    let left: Vec<u64> = store.slots.keys().copied().filter(|slot| *slot <= base).collect();
    assert_eq!(left, [1]);
}

/// A load that meets a truncation starts over; a hole in a chain that has not moved is corruption,
/// named.
#[test]
fn a_hole_is_corruption_unless_the_chain_moved() {
    let (mut store, tip) = long_chain();
    let hole = tip.slot - 1;
    let bytes = store.slots.remove(&hole).unwrap();
    let error = store.load().unwrap_err();
    assert_eq!(
        (error.kind(), error.object_name()),
        (ErrorKind::Corrupt, Some(names::record(INCARNATION, hole).as_str()))
    );
    store.slots.insert(hole, bytes);
    let (machine, effect) = store.run_part(Load::new(INCARNATION, Proof::List), 3);
    assert!(matches!(effect, Effect::ReadRecords(..) | Effect::ReadSnapshot(..)), "{effect:?}");
    let tip = store.snapshot(&tip);
    store.run(Truncate::new(INCARNATION, tip.slot - 1)).unwrap();
    assert_eq!(store.finish(machine, effect).unwrap().unwrap(), tip);
}

/// Every flipped bit of the newest record is an error that names the record, and never a panic or
/// another state.
#[test]
fn flipped_bits_are_errors() {
    let (mut store, tip) = long_chain();
    let sound = store.slots[&tip.slot].clone();
    for bit in 0..sound.len() * 8 {
        let mut damaged = sound.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        store.slots.insert(tip.slot, damaged.into());
        let error = store.load().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "bit {bit}: {error}");
        assert!(error.object_name().is_some());
    }
}

/// A claim whose put landed below the newest record is void, and one that lost its slot is told
/// what came first.
#[test]
fn claims_below_the_newest_are_void() {
    let mut store = Store::default();
    let first = store.claim();
    let stale = first.clone();
    let tip = store.edit(&first);
    match store.run(Claim::new(stale.clone(), Writer::default())).unwrap() {
        Claimed::Behind(behind) => assert_eq!(behind, tip),
        other => panic!("{other:?}"),
    }
    let tip = store.snapshot(&tip);
    store.run(Truncate::new(INCARNATION, tip.slot - 1)).unwrap();
    assert_eq!(store.run(Claim::new(stale, Writer::default())).unwrap(), Claimed::Void);
    assert_eq!(store.load().unwrap().unwrap(), tip, "a void claim in a deleted slot disturbs nobody");
}

/// The same bytes go to the same slot, whatever is answered, until the slot was seen to hold them.
#[test]
fn a_put_of_unknown_outcome_is_repeated() {
    let mut store = Store::default();
    let tip = store.claim();
    let mut append = Append::new(tip.clone(), tip.epoch(), RecordKind::Edits(Vec::new()));
    let Step::Do(Effect::Random) = append.begin() else { panic!() };
    let mut puts = Vec::new();
    let mut step = append.step(Answer::Random(1));
    for answer in
        [PutAnswer::Unknown, PutAnswer::Refused(Error::new(ErrorKind::Retry, "later")), PutAnswer::Unknown]
    {
        let Step::Do(Effect::PutRecord(_, slot, bytes)) = step else { panic!("{step:?}") };
        puts.push((slot, bytes));
        step = append.step(Answer::Put(answer));
    }
    assert!(puts.iter().all(|put| *put == puts[0] && put.0 == tip.slot + 1));
    // It had landed.
    store.slots.insert(puts[0].0, puts[0].1.clone());
    let Step::Do(effect) = step else { panic!() };
    match store.finish(append, effect) {
        Ok(Appended::Committed(tip)) => assert_eq!(tip.hash, record_hash(&puts[0].1)),
        other => panic!("{other:?}"),
    }
}

/// A follower reads on, believes nothing without a list, and learns that the chain was truncated
/// beyond it.
#[test]
fn a_follower_stays_on_the_chain() {
    let (mut store, tip) = long_chain();
    assert_eq!(store.run(Follow::new(tip.clone(), false)).unwrap(), Followed::Unchanged);
    assert_eq!(store.run(Follow::new(tip.clone(), true)).unwrap(), Followed::Current(tip.clone()));
    let mut newer = tip.clone();
    for _ in 0..300 {
        newer = store.edit(&newer);
    }
    store.asked.clear();
    assert_eq!(store.run(Follow::new(tip.clone(), false)).unwrap(), Followed::Current(newer.clone()));
    assert!(matches!(store.asked.last(), Some(Effect::NewestRecord(_))));
    let newest = store.snapshot(&newer);
    store.run(Truncate::new(INCARNATION, newer.slot)).unwrap();
    assert_eq!(store.run(Follow::new(tip, true)).unwrap(), Followed::Lost);
    assert_eq!(store.run(Follow::new(newer, true)).unwrap(), Followed::Current(newest));
}

/// A life in which a database was created, and its tip.
fn created(store: &mut Store, life: Incarnation) -> Tip {
    let Ok(Claimed::Effective(tip)) = store.run(Claim::new(Tip::empty(life), Writer::default())) else {
        panic!("claimed")
    };
    let created =
        Edit::DatabaseCreated { id: life.0, log_identity: "memory".into(), created_unix_seconds: 0 };
    store.append(&tip, RecordKind::Edits(vec![created]))
}

/// A standby of a life that has ended takes over no other one, though its epoch has the
/// same number.
fn a_standby_of_an_earlier_life_claims_nothing() {
    let mut lives = [Store::default(), Store::default()];
    let known = created(&mut lives[0], Incarnation(1));
    // The writer goes on, and the database is destroyed.
    let tip = lives[0].edit_twice(&known);
    let Ok(Claimed::Effective(tip)) = lives[0].run(Claim::new(tip, Writer::default())) else {
        panic!("claimed")
    };
    let last = lives[0].append(&tip, RecordKind::Destroyed);
    lives[0].run(Truncate::new(Incarnation(1), last.slot - 1)).unwrap();
    let newest = created(&mut lives[1], Incarnation(2));
    assert_eq!(newest.epoch(), known.epoch());
    let mut open = Open::succeeding(Policy::new(OpenMode::Open, None), known);
    let mut step = open.begin();
    let outcome = loop {
        let effect = match step {
            Step::Done(outcome) => break outcome,
            Step::Do(effect) => effect,
        };
        let answer = match effect {
            Effect::NewestIncarnation => Answer::Newest(Some(2)),
            Effect::NewestRecord(Incarnation(2))
            | Effect::ReadRecords(Incarnation(2), _)
            | Effect::PutRecord(Incarnation(2), ..) => lives[1].perform(effect),
            _ => lives[0].perform(effect),
        };
        step = open.step(answer);
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(lives[1].slots.len() as u64, newest.slot, "its writer is not disturbed");
}

#[test]
fn a_standby_takes_over_no_other_life() {
    a_standby_of_an_earlier_life_claims_nothing();
}

/// The state before the last record is found as long as the chain below is there, and not taken for
/// another once it is gone.
#[test]
fn the_state_that_a_life_ended_with_is_found_until_it_is_truncated() {
    let (mut store, tip) = long_chain();
    let last = store.append(&tip, RecordKind::Destroyed);
    let before = |store: &mut Store| store.run(Load::of_slot(INCARNATION, last.slot - 1)).unwrap().unwrap();
    let found = before(&mut store);
    assert_eq!((&found, &*found.state), (&tip, &*tip.state));
    for effects in [2, 5, 10, 12] {
        store.run_part(Truncate::new(INCARNATION, last.slot - 1), effects);
        let found = before(&mut store);
        assert!(found == tip || found == last && found.state.is_destroyed(), "{found:?}");
    }
    store.run(Truncate::new(INCARNATION, last.slot - 1)).unwrap();
    assert_eq!(before(&mut store), last);
}

/// Another epoch's claim in the slot: fenced.
#[test]
fn a_foreign_record_fences() {
    let mut store = Store::default();
    let first = store.claim();
    store.claim();
    let append = Append::new(first.clone(), first.epoch(), RecordKind::Edits(Vec::new()));
    assert!(matches!(store.run(append), Ok(Appended::Fenced)));
    assert_eq!(first.epoch(), Epoch(1));
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use tombolo_storage::mutant::{Mutant, enable, notices};

    /// Rule 3 without the list of a follower that finds nothing new: where its chain was truncated,
    /// it stays for ever.
    #[test]
    fn rule_3_a_follower_that_never_confirms_is_caught() {
        notices(Mutant::FollowNeverConfirms, a_follower_stays_on_the_chain);
    }

    /// Rule 4, of a standby: an epoch of another life is none that it succeeds.
    #[test]
    fn rule_4_a_standby_that_claims_another_life_is_caught() {
        notices(Mutant::ClaimSucceedsAnotherLife, a_standby_of_an_earlier_life_claims_nothing);
    }

    /// Rule 2 without the order: what an interrupted truncation leaves is never found again.
    #[test]
    fn rule_2_deleting_in_descending_order_is_caught() {
        let _guard = enable(Mutant::ManifestDeleteDescending);
        let (mut store, tip) = long_chain();
        let base = tip.snapshot.unwrap().slot;
        store.run_part(Truncate::new(INCARNATION, base), 9);
        store.run(Truncate::new(INCARNATION, base)).unwrap();
        assert!(store.slots.keys().any(|slot| (2..=base).contains(slot)), "the rest was found after all");
    }

    /// Rule 1 without the hashes: a record passes for the successor of another than its own.
    #[test]
    fn rule_1_another_history_is_caught() {
        let mut store = Store::default();
        let tip = store.claim();
        let edit =
            |tip: &Tip, attempt| tip.propose(tip.epoch(), attempt, RecordKind::Edits(Vec::new())).unwrap();
        let second = edit(&edit(&tip, 7).tip, 8);
        store.slots.insert(tip.slot + 1, edit(&tip, 9).bytes);
        store.slots.insert(tip.slot + 2, second.bytes);
        assert!(store.load().is_err());
        let _guard = enable(Mutant::ManifestIgnoreHash);
        assert!(store.load().is_ok(), "the mutant takes the record of another history");
    }

    /// Rule 1 without the incarnation: a record of another life of the database passes for one of
    /// this.
    #[test]
    fn rule_1_another_incarnation_is_caught() {
        let mut store = Store::default();
        let tip = store.claim();
        let other = Tip { incarnation: Incarnation(2), ..tip.clone() };
        let foreign = other.propose(tip.epoch(), 7, RecordKind::Edits(Vec::new())).unwrap();
        store.slots.insert(tip.slot + 1, foreign.bytes);
        assert_eq!(store.load().unwrap_err().kind(), ErrorKind::Corrupt);
        let _guard = enable(Mutant::ManifestIgnoreIncarnation);
        assert!(store.load().is_ok(), "the mutant takes the foreign record");
    }
}
