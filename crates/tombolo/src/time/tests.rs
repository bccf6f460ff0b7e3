//! The time, and a small model of all that it decides: every history of a few steps of a writer, a
//! successor on a host whose clock is behind, a reader and a snapshot, with clocks that jump.

use super::*;

/// Short spans, so that few steps cross them.
const SHORT: Spans = Spans { grace: 3, reserve: 2, lead: 1 };
/// An entry is there from the start, and ends then.
const END: u64 = 103;
const BEGIN: u64 = 100;
const STEPS_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// All clocks go on.
    Tick,
    /// The writer's clock is set back, or on.
    Back,
    Ahead,
    /// The keeper does what it does now and then.
    Keep,
    /// A successor takes over, on a host whose clock is behind.
    TakeOver,
    /// The writer closes, and opens again.
    Reopen,
    Read,
    Follow,
    Snapshot,
    Compact,
}

const STEPS: [Step; 10] = [
    Step::Tick,
    Step::Back,
    Step::Ahead,
    Step::Keep,
    Step::TakeOver,
    Step::Reopen,
    Step::Read,
    Step::Follow,
    Step::Snapshot,
    Step::Compact,
];

struct Model {
    steady: u64,
    host: u64,
    /// What the manifest says.
    durable: Times,
    writer: DatabaseTime,
    /// The writer before, which does not know yet, and its clock.
    fenced: Option<(DatabaseTime, u64)>,
    reader: DatabaseTime,
    /// The time of a snapshot.
    snapshot: Option<u64>,
    has_bytes: bool,
    /// Somebody was told that the entry has ended.
    told: bool,
    told_reader: bool,
    /// Since when somebody might have been told, by the steady clock.
    ended_since: Option<u64>,
}

impl Model {
    fn new() -> Model {
        let begin = || DatabaseTime::with(SHORT, Times::default(), BEGIN, 0);
        Model {
            steady: 0,
            host: BEGIN,
            durable: Times::default(),
            writer: begin(),
            fenced: None,
            reader: begin(),
            snapshot: None,
            has_bytes: true,
            told: false,
            told_reader: false,
            ended_since: None,
        }
    }

    fn record(&mut self, times: Times) {
        assert!(times.is_sound(), "{times:?}");
        assert!(times.reached_ms >= self.durable.reached_ms, "a record goes back");
        self.durable = times;
        self.writer.recorded(times);
    }

    fn begin(&self) -> DatabaseTime {
        DatabaseTime::with(SHORT, self.durable, self.host, self.steady)
    }

    /// Whether a moment sees the entry; what was read and is gone tells.
    fn sees(&self, judged: u64) -> bool {
        let sees = END > judged;
        assert!(!sees || self.has_bytes, "bytes were destroyed that {judged} sees");
        sees
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Tick => {
                self.steady += 1;
                self.host += 1;
                if let Some((_, host)) = &mut self.fenced {
                    *host += 1;
                }
            }
            Step::Back => self.host -= 4,
            Step::Ahead => self.host += 6,
            Step::Keep => {
                self.writer.step(self.host, self.steady);
                let end = Expiry::of(END);
                if self.writer.plan([end].into_iter(), self.host, self.steady).wants_record {
                    self.record(self.writer.to_record(self.host));
                }
                // Once more: the record lets time go on.
                self.writer.step(self.host, self.steady);
            }
            Step::TakeOver => {
                let before = self.host;
                self.host -= 3;
                let successor = self.begin();
                self.fenced = Some((std::mem::replace(&mut self.writer, successor), before));
                self.snapshot = None;
            }
            Step::Reopen => {
                if let Some(times) = self.writer.to_close(self.host) {
                    self.record(times);
                }
                self.writer = self.begin();
                self.snapshot = None;
            }
            Step::Read => {
                if let Some((fenced, host)) = &self.fenced {
                    // It may say that the entry is there after its successor said that it has
                    // ended, as it may be stale in all else; never the other way.
                    let ended = END <= fenced.judged(*host);
                    self.told |= ended;
                }
                let sees = self.sees(self.writer.judged(self.host));
                assert!(!sees || !self.told, "what had expired is there again");
                self.told |= !sees;
            }
            Step::Follow => {
                self.reader.follow(self.durable);
                let sees = self.sees(self.reader.reached());
                assert!(!sees || !self.told_reader, "what had expired is there again for a reader");
                self.told_reader |= !sees;
                self.told |= !sees;
            }
            Step::Snapshot => match self.snapshot {
                None => self.snapshot = Some(self.writer.judged(self.host)),
                Some(time) => {
                    self.sees(time);
                }
            },
            Step::Compact => {
                self.writer.step(self.host, self.steady);
                let is_seen = self.snapshot.is_some_and(|time| END > time);
                if self.writer.settled() >= END && !is_seen && self.has_bytes {
                    self.has_bytes = false;
                    let since = self.ended_since.expect("what has not ended was destroyed");
                    assert!(since + SHORT.grace <= self.steady, "destroyed before the grace is over");
                }
            }
        }
        if self.writer.judged(self.host) >= END {
            self.ended_since.get_or_insert(self.steady);
        }
        assert!(self.writer.judged(self.host) <= self.durable.bound_ms, "judged beyond what is recorded");
    }
}

/// Looks at every history up to a length; each is short, so that each is run from its beginning.
fn search(history: &mut Vec<Step>, found: &mut [u64; 2]) {
    for step in STEPS {
        history.push(step);
        let mut model = Model::new();
        history.iter().for_each(|step| model.apply(*step));
        found[0] += u64::from(model.told);
        found[1] += u64::from(!model.has_bytes);
        if history.len() < STEPS_MAX && (history.len() > 1 || step != Step::Reopen) {
            search(history, found);
        }
        history.pop();
    }
}

/// The same with a beginning of which searched steps alone would be too many.
fn histories() {
    let mut found = [0; 2];
    search(&mut Vec::new(), &mut found);
    let long = [
        vec![Step::Ahead, Step::Keep, Step::Read],
        vec![Step::Ahead, Step::Keep, Step::Tick, Step::Tick, Step::Tick],
        vec![Step::Snapshot, Step::Ahead, Step::Keep, Step::Tick, Step::Tick, Step::Tick, Step::Compact],
    ];
    for mut history in long {
        let mut found = [0; 2];
        let length = history.len();
        deeper(&mut history, length + 4, &mut found);
        assert!(found[0] > 0);
    }
    assert!(found[0] > 1000, "{found:?}");
}

fn deeper(history: &mut Vec<Step>, length_max: usize, found: &mut [u64; 2]) {
    for step in STEPS {
        history.push(step);
        let mut model = Model::new();
        history.iter().for_each(|step| model.apply(*step));
        found[0] += u64::from(model.told);
        found[1] += u64::from(!model.has_bytes);
        if history.len() < length_max {
            deeper(history, length_max, found);
        }
        history.pop();
    }
}

#[test]
fn what_has_expired_stays_so_and_is_not_destroyed_too_soon() {
    histories();
}

#[cfg(feature = "mutants")]
#[test]
fn a_time_without_its_rules_is_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::TimeBeginsAtHostClock, histories);
    notices(Mutant::TimeJudgedUnbounded, histories);
    notices(Mutant::ExpiredDestroyedAtOnce, histories);
}

const HOUR: u64 = GRACE_MS;

fn of_minutes(minutes: u64) -> u64 {
    minutes * 60_000
}

/// Hours after hours of a writer whose entries end all the time: records come at a bounded rate,
/// and what ends settles an hour later.
#[test]
fn the_keeper_writes_a_record_a_minute_at_most_and_time_settles() {
    let (mut host, mut steady) = (HOUR, 0);
    let time = DatabaseTime::begin(Times::default(), host, steady);
    let end = Expiry { entries: 100, earliest_ms: HOUR, latest_ms: 10 * HOUR, written_ms: u64::MAX };
    let (mut records, mut looks) = (0, 0);
    while steady < 5 * HOUR {
        time.step(host, steady);
        looks += 1;
        let mut plan = time.plan([end].into_iter(), host, steady);
        if plan.wants_record {
            records += 1;
            time.recorded(time.to_record(host));
            plan = time.plan([end].into_iter(), host, steady);
            assert!(!plan.wants_record);
        }
        assert_eq!(time.judged(host), host);
        let again = plan.again_ms.expect("entries end later");
        host += again;
        steady += again;
    }
    assert!((290..=310).contains(&records), "{records} in five hours");
    assert!(looks < 1000, "{looks}");
    let behind = time.judged(host) - time.settled();
    assert!((HOUR..HOUR + of_minutes(5)).contains(&behind), "{behind}");
}

/// Without entries that end, nothing is written and nobody wakes.
#[test]
fn nothing_is_done_where_nothing_ends() {
    let time = DatabaseTime::begin(Times::default(), HOUR, 0);
    time.step(HOUR, 0);
    assert_eq!(time.plan(std::iter::empty(), HOUR, 0), Plan::default());
    let later = Expiry::of(3 * HOUR);
    let plan = time.plan([later].into_iter(), HOUR, 0);
    assert_eq!(plan, Plan { wants_record: false, again_ms: Some(2 * HOUR - LEAD_MS) });
}

/// A write while the keeper looks is news, as its plan may be made without it.
#[test]
fn what_is_written_during_a_look_is_told_of() {
    let time = DatabaseTime::begin(Times::default(), HOUR, 0);
    time.step(HOUR, 0);
    time.plan([Expiry::of(3 * HOUR)].into_iter(), HOUR, 0);
    assert!(time.is_news(2 * HOUR) && !time.is_news(3 * HOUR) && !time.is_news(4 * HOUR));
    time.step(HOUR, 0);
    assert!(time.is_news(4 * HOUR) && !time.is_news(u64::MAX));
}

/// Of an odd number of milliseconds half is lost once, and not at each look.
#[test]
fn a_time_that_is_ahead_goes_on_however_often_it_is_looked_at() {
    let ahead = Times { reached_ms: 9 * HOUR, bound_ms: 9 * HOUR, settled_ms: 0 };
    let time = DatabaseTime::begin(ahead, HOUR, 0);
    (1..=1000).for_each(|steady| time.step(HOUR + steady, steady));
    assert_eq!(time.now(HOUR + 1000), 9 * HOUR + 500);
}

/// One that was ahead waits for the host's clock, at half its pace, and does not stand.
#[test]
fn a_successor_that_begins_ahead_comes_back_to_the_clock() {
    let (mut host, mut steady) = (HOUR, 0);
    let ahead = Times { reached_ms: HOUR, bound_ms: HOUR + RESERVE_MS, settled_ms: 0 };
    let time = DatabaseTime::begin(ahead, host, steady);
    assert_eq!(time.now(host), HOUR + RESERVE_MS);
    let mut before = time.now(host);
    for _ in 0..30 {
        host += 10_000;
        steady += 10_000;
        time.step(host, steady);
        let now = time.now(host);
        assert!(now >= before, "time went back");
        before = now;
    }
    assert_eq!(before, host, "it has come back to the host's clock");
}

#[test]
fn ends_in_the_past_and_beyond_all_time_are_refused() {
    let time = DatabaseTime::begin(Times::default(), HOUR, 0);
    assert_eq!(time.end_of(5, HOUR).unwrap(), HOUR + 5);
    for ttl_ms in [0, EXPIRY_MS_MAX, u64::MAX] {
        assert_eq!(time.end_of(ttl_ms, HOUR).unwrap_err().kind(), ErrorKind::Invalid);
    }
    time.check_end(HOUR + 1, HOUR).unwrap();
    for end in [0, HOUR, EXPIRY_MS_MAX + 1] {
        assert_eq!(time.check_end(end, HOUR).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// Set back, it goes on from the host's clock, and destroys nothing that was hidden by mistake.
#[test]
fn a_time_that_was_far_ahead_is_set_back() {
    let time = DatabaseTime::begin(Times::default(), 100 * HOUR, 0);
    let end = Expiry::of(50 * HOUR);
    assert!(time.plan([end].into_iter(), 100 * HOUR, 0).wants_record);
    time.recorded(time.to_record(100 * HOUR));
    time.step(100 * HOUR, 1);
    assert!(time.judged(HOUR) >= 50 * HOUR, "hidden");
    time.reset(time.to_reset(HOUR), 2);
    assert_eq!((time.now(HOUR), time.judged(HOUR)), (HOUR, HOUR));
    time.step(2 * HOUR, HOUR + 2);
    assert_eq!(time.settled(), 0, "nothing is destroyed by what it was before");
}

#[test]
fn a_time_that_settles_nothing_takes_operands_however_old() {
    let settled = of_minutes(1);
    let times = Times { reached_ms: settled, bound_ms: settled, settled_ms: settled };
    let begin = of_minutes(1000);
    let time = DatabaseTime::begin(times, begin, 0);
    time.step(begin, 0);
    let old = settled + 1;
    assert_eq!(time.check_written(old, begin).unwrap_err().kind(), ErrorKind::Conflict);
    time.settle_nothing();
    for minutes in 1..200 {
        let host = begin + of_minutes(minutes);
        time.step(host, of_minutes(minutes));
        time.recorded(time.to_record(host));
        time.check_written(old, host).unwrap();
    }
    assert_eq!(time.settled(), settled);
    let older = time.check_written(settled - 1, begin).unwrap_err();
    assert_eq!(older.kind(), ErrorKind::Conflict, "what was below it may be gone");
}

/// What has ended is not noted while nothing may be destroyed for it: the keeper has no work.
#[test]
fn a_keeper_that_holds_does_not_look_for_what_has_ended() {
    let times = Times { reached_ms: BEGIN, bound_ms: END + 10, settled_ms: 0 };
    let looks_again = |holds: bool| {
        let time = DatabaseTime::with(SHORT, Times::default(), BEGIN, 0);
        time.recorded(times);
        time.step(BEGIN + 1, 1);
        if holds {
            time.settle_nothing();
        }
        time.step(END + 20, 23);
        time.plan([Expiry::of(END + 5)].into_iter(), END + 20, 23).again_ms
    };
    assert!(looks_again(false).is_some());
    assert_eq!(looks_again(true), None);
}
