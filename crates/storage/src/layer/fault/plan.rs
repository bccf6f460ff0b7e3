//! What goes wrong, and when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;
use tombolo_env::{BoxFuture, Env, TaskClass};

use crate::layer::RequestKind;
use crate::{ErrorKind, Purpose};

/// A request as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its number since the plan was made, from 1.
    pub number: u64,
    /// Its kind.
    pub kind: RequestKind,
    /// Why.
    pub purpose: Purpose,
    /// The object's name, a list's prefix, or a log's epoch and lane.
    pub name: &'a str,
    /// Bytes sent or asked for; of a list, names.
    pub bytes: u64,
}

/// When an effect comes that does not come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// After this time.
    After(Duration),
    /// When [`FaultPlan::release`] is called.
    Released,
}

/// Foreign code at a request.
pub type Hook = Arc<dyn Fn() + Send + Sync>;

/// What goes wrong with one request.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fault {
    /// It fails, and nothing takes effect.
    Error(ErrorKind),
    /// It begins this much later.
    Delay(Duration),
    /// A read returns only this many bytes, although there are more; a piece of a stream is lost
    /// and its writer with it. Reads of logs are not cut.
    Short(u64),
    /// A change fails with `OutcomeUnknown`; it took effect or it did not.
    Unknown {
        /// Whether it took effect.
        landed: bool,
    },
    /// A change fails with `OutcomeUnknown`, and takes effect later.
    Late(Lateness),
    /// A change takes effect now and once more later, whatever happened in between.
    Duplicate(Lateness),
    /// A page of a list is put together from two moments. A list of one name is left alone, unless
    /// lists walk ([`FaultPlan::set_lists_walk`]): it then shows the first of the names of the
    /// earlier moment that is still there at the later one.
    TornList {
        /// Whether its first names come from the earlier of the two moments; the last ones come
        /// from the other.
        earlier_first: bool,
        /// The time between the two.
        apart: Duration,
    },
    /// The hook runs before the request takes effect: the place to kill a simulated process.
    Before(Hook),
    /// The hook runs after the request took effect, before its caller learns so.
    After(Hook),
}

impl fmt::Debug for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error(kind) => write!(formatter, "Error({kind:?})"),
            Fault::Delay(delay) => write!(formatter, "Delay({delay:?})"),
            Fault::Short(bytes) => write!(formatter, "Short({bytes})"),
            Fault::Unknown { landed } => write!(formatter, "Unknown {{ landed: {landed} }}"),
            Fault::Late(lateness) => write!(formatter, "Late({lateness:?})"),
            Fault::Duplicate(lateness) => write!(formatter, "Duplicate({lateness:?})"),
            Fault::TornList { earlier_first, apart } => {
                write!(formatter, "TornList({earlier_first}, {apart:?})")
            }
            Fault::Before(_) => formatter.write_str("Before"),
            Fault::After(_) => formatter.write_str("After"),
        }
    }
}

/// A fault with the requests that meet it.
pub struct Rule {
    when: Box<dyn FnMut(&Asked<'_>) -> bool + Send>,
    /// Matching requests that are let through first.
    skip: u64,
    /// Matching requests that meet the fault.
    times: u64,
    fault: Fault,
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {} times after {}", self.fault, self.times, self.skip)
    }
}

impl Rule {
    /// `fault` for every request of which `when` is true.
    pub fn new(when: impl FnMut(&Asked<'_>) -> bool + Send + 'static, fault: Fault) -> Rule {
        Rule { when: Box::new(when), skip: 0, times: u64::MAX, fault }
    }

    /// `fault` for every request of a kind.
    pub fn of_kind(kind: RequestKind, fault: Fault) -> Rule {
        Rule::new(move |asked| asked.kind == kind, fault)
    }

    /// `fault` for the request with this number.
    pub fn at(number: u64, fault: Fault) -> Rule {
        Rule::new(move |asked| asked.number == number, fault).times(1)
    }

    /// Lets the first `skip` matching requests through.
    #[must_use]
    pub fn skip(mut self, skip: u64) -> Rule {
        self.skip = skip;
        self
    }

    /// Ends after `times` requests met the fault.
    #[must_use]
    pub fn times(mut self, times: u64) -> Rule {
        self.times = times;
        self
    }
}

/// How likely each fault is, from 0 to 1, for each request that can meet it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chances {
    /// Fails with `Retry`; nothing takes effect.
    pub error: f64,
    /// Begins later.
    pub delay: f64,
    /// Ends with `OutcomeUnknown`: landed, not landed, or landing later.
    pub unknown: f64,
    /// Takes effect twice.
    pub duplicate: f64,
    /// A page of a list is put together from two moments.
    pub torn_list: f64,
    /// The longest delay.
    pub delay_max: Duration,
    /// The longest time after which a late or duplicated effect comes.
    pub lateness_max: Duration,
}

impl Chances {
    /// Nothing ever goes wrong.
    pub const NONE: Chances = Chances {
        error: 0.0,
        delay: 0.0,
        unknown: 0.0,
        duplicate: 0.0,
        torn_list: 0.0,
        delay_max: Duration::from_millis(50),
        lateness_max: Duration::from_secs(5),
    };

    /// A bad day: one request in seven meets something.
    pub const ROUGH: Chances =
        Chances { error: 0.03, delay: 0.05, unknown: 0.03, duplicate: 0.03, torn_list: 0.3, ..Chances::NONE };
}

/// An effect that is still to come.
type Pending = BoxFuture<'static, ()>;

struct State {
    chance: Xoshiro256StarStar,
    chances: Chances,
    rules: Vec<Rule>,
    full: bool,
    lists_walk: bool,
    requests: u64,
    injected: u64,
    held: Vec<Pending>,
}

/// Decides what goes wrong. Clones are handles of one plan.
#[derive(Clone)]
pub struct FaultPlan(Arc<Mutex<State>>);

impl fmt::Debug for FaultPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        write!(
            formatter,
            "FaultPlan({} requests, {} faults so far, {} held)",
            state.requests,
            state.injected,
            state.held.len()
        )
    }
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan::scripted()
    }
}

impl FaultPlan {
    /// Nothing goes wrong until a rule says so.
    pub fn scripted() -> FaultPlan {
        FaultPlan::random(0, Chances::NONE)
    }

    /// Faults come by chance, from `seed`; rules may be added.
    pub fn random(seed: u64, chances: Chances) -> FaultPlan {
        FaultPlan(Arc::new(Mutex::new(State {
            chance: Xoshiro256StarStar::seed_from_u64(seed),
            chances,
            rules: Vec::new(),
            full: false,
            lists_walk: false,
            requests: 0,
            injected: 0,
            held: Vec::new(),
        })))
    }

    /// Adds a rule. Of several that match, each strikes.
    pub fn inject(&self, rule: Rule) {
        self.0.lock().rules.push(rule);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        let rules = std::mem::take(&mut self.0.lock().rules);
        drop(rules);
    }

    /// Changes the chances from here on.
    pub fn set_chances(&self, chances: Chances) {
        self.0.lock().chances = chances;
    }

    /// Makes the store full, or not: creations and appends then fail with `OutOfSpace`.
    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// Makes the store one whose lists may walk
    /// ([`StoreTraits::lists_may_walk`](crate::StoreTraits::lists_may_walk)), or not.
    pub fn set_lists_walk(&self, lists_walk: bool) {
        self.0.lock().lists_walk = lists_walk;
    }

    pub(super) fn lists_walk(&self) -> bool {
        self.0.lock().lists_walk
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// Faults so far.
    pub fn injected(&self) -> u64 {
        self.0.lock().injected
    }

    /// Effects that wait for [`FaultPlan::release`].
    pub fn held(&self) -> usize {
        self.0.lock().held.len()
    }

    /// Lets all held effects take place, in the order of their requests, and returns when they
    /// have.
    pub async fn release(&self) {
        let held = std::mem::take(&mut self.0.lock().held);
        for pending in held {
            pending.await;
        }
    }

    /// Carries `effect` out at its time.
    pub(super) fn later(&self, env: &Env, lateness: Lateness, effect: Pending) {
        match lateness {
            Lateness::Released => self.0.lock().held.push(effect),
            Lateness::After(time) => {
                let sleep = env.sleep(time);
                env.spawn(TaskClass::Foreground, "late-effect", async move {
                    sleep.await;
                    effect.await;
                })
                .detach();
            }
        }
    }

    /// Numbers a request and says what it meets.
    pub(super) fn ask(&self, kind: RequestKind, purpose: Purpose, name: &str, bytes: u64) -> Vec<Fault> {
        let mut state = self.0.lock();
        state.requests += 1;
        let asked = Asked { number: state.requests, kind, purpose, name, bytes };
        let mut faults = Vec::new();
        for rule in &mut state.rules {
            if rule.times == 0 || !(rule.when)(&asked) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            faults.push(rule.fault.clone());
        }
        state.draw(kind, &mut faults);
        let fills = kind.is_creation()
            || matches!(
                kind,
                RequestKind::Create | RequestKind::Append | RequestKind::LogAppend | RequestKind::LogOpen
            );
        if state.full && fills {
            faults.push(Fault::Error(ErrorKind::OutOfSpace));
        }
        state.injected += faults.len() as u64;
        faults
    }
}

impl State {
    fn draw(&mut self, kind: RequestKind, faults: &mut Vec<Fault>) {
        let chances = self.chances;
        if chances == Chances::NONE {
            return;
        }
        // Each request draws the same number of times, so that one more fault does not shift all
        // others.
        let mut drawn = [0.0; 5];
        drawn.fill_with(|| self.chance.random::<f64>());
        let [delay, error, unknown, duplicate, torn] = drawn;
        let (time, late, which) =
            (self.chance.random::<f64>(), self.chance.random::<f64>(), self.chance.random_range(0..4_u32));
        let lateness = Lateness::After(chances.lateness_max.mul_f64(late));
        let object_change = kind.is_creation() || kind == RequestKind::Delete;
        if delay < chances.delay {
            faults.push(Fault::Delay(chances.delay_max.mul_f64(time)));
        }
        if error < chances.error {
            faults.push(Fault::Error(ErrorKind::Retry));
        }
        if unknown < chances.unknown && object_change {
            faults.push(match which {
                0 => Fault::Unknown { landed: false },
                1 => Fault::Unknown { landed: true },
                _ => Fault::Late(lateness),
            });
        }
        if duplicate < chances.duplicate && object_change {
            faults.push(Fault::Duplicate(lateness));
        }
        if torn < chances.torn_list && kind == RequestKind::List {
            faults.push(Fault::TornList { earlier_first: which < 2, apart: chances.delay_max.mul_f64(time) });
        }
    }
}
