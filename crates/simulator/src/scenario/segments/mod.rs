//! The protocol of replicated segments alone: its state machines, real nodes without IO, and a
//! network that drops, delays, repeats and reorders.
//!
//! Processes claim one after the other, or on top of each other, take older logs over and write
//! their own; they are paused and killed anywhere. Nodes lose their memory, and bytes in it rot.
//! Thousands of histories in a second: what the whole engine does with a log is judged elsewhere.

mod chain;
mod checker;
mod process;
mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_env::simulated::tape;
use tombolo_format::segment_record::first_digest;
use tombolo_segment::call::{Call, CallId, Lost, Member, Node, Outcome, Shape};
use tombolo_segment::follow::committed;
use tombolo_segment::message::{Answer, Body, NodeIncarnation, RegionId, Request};
use tombolo_segment::region::Regions;
use tombolo_segment::writer::Published;
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{self, Mutant, is_enabled};

use self::chain::{Chain, Newest, Record};
use self::checker::Checker;
use self::process::{DATABASE, Process, Put, Tag, identity};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

pub(super) const NAME: &str = "segments";

/// Bytes that a node lends: room for many regions.
const NODE_BYTES: u64 = 16 << 20;

/// Steps after which a history that should have come to its end hangs.
const END_STEPS_MAX: u32 = 4000;

/// Something on its way.
#[derive(Clone, Debug)]
enum Message {
    Request {
        process: usize,
        tag: Tag,
        call: Call,
    },
    /// An append that its node has checked, and appends now; only where a mutant makes two steps of
    /// it.
    Checked {
        process: usize,
        tag: Tag,
        call: Call,
    },
    Answer {
        process: usize,
        tag: Tag,
        id: CallId,
        outcome: Outcome,
    },
    Put {
        process: usize,
        put: Put,
    },
    PutEnded {
        process: usize,
        attempt: u64,
        outcome: Published,
    },
}

struct World {
    random: Random,
    shape: Shape,
    nodes: Vec<Node>,
    regions: Vec<Regions>,
    lives: u64,
    chain: Chain,
    processes: Vec<Option<Process>>,
    messages: Vec<Message>,
    checker: Checker,
    now: Instant,
    /// Regions of which a byte in memory has changed since the node checked it.
    rotten: BTreeSet<(NodeIncarnation, RegionId)>,
    /// A node that answers nobody.
    silent: Option<usize>,
    /// No message is lost, and none repeated.
    is_healed: bool,
    steps: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let random = Random::new(seed, 41);
        let (copies, quorum, count) = [(3, 2, 4), (3, 2, 3), (5, 3, 6), (3, 2, 5)][(seed % 4) as usize];
        let node =
            |at: usize| Node { address: format!("n{at}").into(), domain: format!("d{}", at % 3).into() };
        World {
            random,
            shape: Shape { copies, quorum },
            nodes: (0..count).map(node).collect(),
            regions: (1..=count as u64).map(|life| Regions::new(NodeIncarnation(life), NODE_BYTES)).collect(),
            lives: count as u64,
            chain: Chain::new(),
            processes: Vec::new(),
            messages: Vec::new(),
            checker: Checker::default(),
            now: Instant::from_nanos(1),
            rotten: BTreeSet::new(),
            silent: None,
            is_healed: false,
            steps: 0,
        }
    }

    fn begin(&mut self) {
        let random = Random::new(self.random.next(), 5);
        let process = Process::begin(&mut self.chain, self.shape, &self.nodes, random);
        self.say(|| format!("process {} claims epoch {}", self.processes.len(), process.epoch));
        self.processes.push(Some(process));
    }

    /// Lets a process go on, and takes what it says to the network.
    fn step_process(&mut self, at: usize) -> Result<(), Violation> {
        let Some(process) = self.processes[at].as_mut().filter(|process| !process.is_paused) else {
            return Ok(());
        };
        process.claim_late(&mut self.chain);
        let said = process.step(&mut self.checker, self.now)?;
        if let Some(Put { record: Record::Configuration { members, .. }, log, needed, .. }) = &said.put {
            self.checker.proposed(at, *log, members, *needed, self.shape.quorum)?;
        }
        self.messages.extend(said.calls.into_iter().map(|(tag, call)| Message::Request {
            process: at,
            tag,
            call,
        }));
        self.messages.extend(said.put.map(|put| Message::Put { process: at, put }));
        if process.has_ended {
            self.processes[at] = None;
        }
        Ok(())
    }

    /// Takes something that is on its way to where it goes.
    fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        self.say(|| words::message(&message));
        match message {
            Message::Request { process, tag, call }
                if is_enabled(Mutant::RegionCheckedApart) && self.would_append(&call) =>
            {
                self.messages.push(Message::Checked { process, tag, call });
                Ok(())
            }
            Message::Request { process, tag, call } => self.request(process, tag, call),
            Message::Checked { process, tag, call } => {
                mutant::with(Mutant::RegionAppendsAfterSeal, || self.request(process, tag, call))
            }
            Message::Answer { process, tag, id, outcome } => {
                let now = self.now;
                if let Some(process) = &mut self.processes[process] {
                    process.answered(tag, id, outcome, now);
                }
                self.step_process(process)
            }
            Message::Put { process, put } => {
                let holds = self.chain.put(put.slot, put.attempt, &put.record);
                let outcome = match holds {
                    _ if !self.is_healed && self.random.percent(20) => Published::Unknown,
                    true => Published::Known,
                    false => Published::Foreign,
                };
                self.messages.push(Message::PutEnded { process, attempt: put.attempt, outcome });
                Ok(())
            }
            Message::PutEnded { process, attempt, outcome } => {
                let now = self.now;
                if let Some(living) = &mut self.processes[process] {
                    living.put_ended(attempt, outcome, &mut self.checker, now)?;
                }
                self.step_process(process)
            }
        }
    }

    /// A request arrives at its node.
    fn request(&mut self, process: usize, tag: Tag, call: Call) -> Result<(), Violation> {
        let node = self.node(&call.node).filter(|node| self.silent != Some(*node));
        let (region, epoch, life) = (call.request.region, call.request.epoch, call.request.incarnation);
        let said = node
            .map(|node| self.regions[node].handle(call.request))
            .map(|said| self.as_it_is_now((life, region), said));
        self.say(|| format!("    {}", words::answer(said.as_ref())));
        if let Some(said) = &said {
            self.checker.answered(process, tag.1, region, epoch, said)?;
        }
        if call.id != CallId::nobodys() {
            self.messages.push(Message::Answer { process, tag, id: call.id, outcome: said.ok_or(Lost) });
        }
        Ok(())
    }

    fn node(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|node| *node.address == *address)
    }

    /// Whether a call is an append to a region that takes appends now.
    fn would_append(&mut self, call: &Call) -> bool {
        let Body::Append { predecessor, .. } = call.request.body else { return false };
        let nothing = Body::Append { offset: 0, predecessor, records: Default::default() };
        let request = Request { body: nothing, ..call.request.clone() };
        let node = self.node(&call.node).filter(|node| self.silent != Some(*node));
        node.is_some_and(|node| matches!(self.regions[node].handle(request), Answer::Held(_)))
    }

    /// What a node reads of a region is what lies there: it checked it when it came.
    fn as_it_is_now(&self, region: (NodeIncarnation, RegionId), said: Answer) -> Answer {
        match said {
            Answer::Bytes(bytes) if !bytes.is_empty() && self.rotten.contains(&region) => {
                let mut bytes = bytes.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 4;
                Answer::Bytes(bytes.into())
            }
            said => said,
        }
    }

    /// A note, if somebody will read it.
    fn say(&self, words: impl FnOnce() -> String) {
        tape::note(|| format!("{:>5} {:>10.3} ms  {}", self.steps, words::milliseconds(self.now), words()));
    }

    /// A message is lost on its way: its waiter may learn that.
    fn lose(&mut self, message: Message) {
        self.say(|| format!("lost: {}", words::message(&message)));
        match message {
            Message::Request { process, tag, call }
                if self.random.percent(50) && call.id != CallId::nobodys() =>
            {
                self.messages.push(Message::Answer { process, tag, id: call.id, outcome: Err(Lost) });
            }
            // A put is made again until its outcome is known: the chain's own task sees to it.
            Message::Put { process, put } => {
                self.messages.push(Message::PutEnded {
                    process,
                    attempt: put.attempt,
                    outcome: Published::Unknown,
                });
            }
            Message::PutEnded { process, attempt, .. } => {
                self.messages.push(Message::PutEnded { process, attempt, outcome: Published::Unknown });
            }
            Message::Request { .. } | Message::Checked { .. } | Message::Answer { .. } => {}
        }
    }

    fn take_message(&mut self) -> Option<Message> {
        if self.messages.is_empty() {
            return None;
        }
        let at = self.random.index(self.messages.len());
        Some(self.messages.swap_remove(at))
    }

    fn tick(&mut self, by: Duration) -> Result<(), Violation> {
        self.say(|| format!("{by:?} pass"));
        self.now = self.now + by;
        for at in 0..self.processes.len() {
            let now = self.now;
            if let Some(process) = self.processes[at].as_mut().filter(|process| !process.is_paused) {
                process.tick(now);
            }
            self.step_process(at)?;
        }
        Ok(())
    }

    /// Reads a region as one who claims nothing.
    fn follow(&mut self) -> Result<(), Violation> {
        let logs = self.chain.logs(self.chain.tip());
        let Some((log, members, _)) = logs.get(self.random.index(logs.len().max(1))) else { return Ok(()) };
        let member = members[self.random.index(members.len())].clone();
        let Some(node) = self.nodes.iter().position(|node| node.address == member.node) else {
            return Ok(());
        };
        let body = Body::Read { from: 0, bytes_max: 1 << 20 };
        let request =
            Request { incarnation: member.incarnation, region: member.region, epoch: Epoch::NONE, body };
        match self.regions[node].handle(request) {
            Answer::Bytes(bytes) => {
                self.checker.shown(*log, committed(first_digest(DATABASE, &identity(*log)), 0, &bytes).end)
            }
            _ => Ok(()),
        }
    }

    /// A living process, if the draw meets one.
    fn any_process(&mut self) -> Option<usize> {
        let at = self.random.index(self.processes.len().max(1));
        self.processes.get(at)?.as_ref().map(|_| at)
    }

    /// One random event.
    fn event(&mut self, loses_memory: bool) -> Result<(), Violation> {
        self.steps += 1;
        match self.random.below(1000) {
            0..780 => match self.take_message() {
                Some(message) => match self.random.below(100) {
                    94..97 => self.lose(message),
                    97.. => {
                        self.messages.push(message.clone());
                        self.deliver(message)?;
                    }
                    _ => self.deliver(message)?,
                },
                None => self.tick(Duration::from_millis(5))?,
            },
            780..900 => self.append()?,
            900..955 => {
                let by = [1, 5, 20, 30, 450, 1100][self.random.index(6)];
                self.tick(Duration::from_millis(by))?;
            }
            955..975 => self.follow()?,
            975..980 => self.begin_one(),
            980..984 => {
                if let Some(at) = self.any_process() {
                    self.say(|| format!("process {at} is killed"));
                    self.processes[at] = None;
                }
            }
            984..990 => {
                if let Some(at) = self.any_process()
                    && let Some(process) = &mut self.processes[at]
                {
                    process.is_paused = !process.is_paused;
                    let words = if process.is_paused { "stands still" } else { "goes on" };
                    self.say(|| format!("process {at} {words}"));
                }
            }
            _ if loses_memory && self.random.percent(30) => {
                let node = self.random.index(self.regions.len());
                if self.random.percent(30) {
                    self.rot(node);
                } else {
                    self.say(|| format!("node {node} begins again without its memory"));
                    self.lives += 1;
                    self.regions[node] = Regions::new(NodeIncarnation(self.lives), NODE_BYTES);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A byte changes in a region of a node, one that is named if there is one.
    fn rot(&mut self, node: usize) {
        let life = self.regions[node].incarnation();
        let logs = self.chain.logs(self.chain.tip());
        let there: Vec<RegionId> = logs
            .iter()
            .flat_map(|(_, members, _)| members)
            .filter(|member| member.incarnation == life)
            .map(|member| member.region)
            .collect();
        if !there.is_empty() {
            let region = there[self.random.index(there.len())];
            self.say(|| format!("a byte of {} on node {node} changes", words::region(region)));
            self.rotten.insert((life, region));
        }
    }

    /// Some process appends.
    fn append(&mut self) -> Result<(), Violation> {
        let Some(at) = self.any_process() else { return Ok(()) };
        let now = self.now;
        if let Some(process) = self.processes[at].as_mut().filter(|process| !process.is_paused) {
            process.append(&mut self.checker, now);
            self.say(|| format!("process {at} appends"));
        }
        self.step_process(at)
    }

    fn begin_one(&mut self) {
        if self.processes.len() < 6 {
            self.begin();
        }
    }

    /// Whether enough is there for a takeover of a log: so many of its regions answer
    /// as the failure model says, and it can be copied.
    fn is_recoverable(&self, (_, members, settled): &Newest) -> bool {
        let answers = |member: &&Member| {
            let node = self.nodes.iter().position(|node| node.address == member.node);
            let is_sound = !self.rotten.contains(&(member.incarnation, member.region));
            is_sound
                && node.is_some_and(|node| {
                    self.silent != Some(node) && self.regions[node].incarnation() == member.incarnation
                })
        };
        let missing = members.len() - members.iter().filter(answers).count();
        if settled.is_some() { missing < members.len() } else { missing < self.shape.quorum }
    }

    /// All heals but one node, if the failure model allows; a last process must serve all, unless
    /// more was lost than that.
    fn end(&mut self) -> Result<(), Violation> {
        self.is_healed = true;
        let logs = self.chain.logs(self.chain.tip());
        if self.random.percent(50) && self.nodes.len() > self.shape.quorum {
            self.silent = Some(self.random.index(self.nodes.len()));
            if !logs.iter().all(|log| self.is_recoverable(log)) {
                self.silent = None;
            }
        }
        self.say(|| format!("all is well; silent: {:?}", self.silent));
        self.begin();
        let last = self.processes.len() - 1;
        for _ in 0..END_STEPS_MAX {
            self.steps += 1;
            let Some(process) = &self.processes[last] else {
                return Err(Violation::new("the last process was fenced by nobody"));
            };
            if process.is_serving() {
                return Ok(());
            }
            if let Some(blocked) = process.blocked {
                let log = logs.iter().find(|log| log.0 == blocked);
                return match log.filter(|log| self.is_recoverable(log)) {
                    Some(_) => Err(Violation::new(format!(
                        "a takeover of log {blocked} ends though no more was lost than may be"
                    ))),
                    None => Ok(()),
                };
            }
            match self.take_message() {
                Some(message) => self.deliver(message)?,
                None => self.tick(Duration::from_millis(60))?,
            }
        }
        Err(Violation::new("the last takeover does not come to its end"))
    }

    fn run(&mut self, seed: u64) -> Result<(), Violation> {
        self.begin();
        let (events, loses_memory) = (self.random.below(1000), (seed / 4).is_multiple_of(2));
        for _ in 0..events {
            self.event(loses_memory)?;
        }
        self.end()
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut world = World::new(seed);
    let Err(what) = super::judged(|| world.run(seed)) else {
        let checker = &world.checker;
        let digest = super::mix(checker.acknowledgements << 32 | checker.served, world.steps);
        return Ok(Report {
            worlds: 1,
            writes: checker.acknowledgements,
            durable: checker.acknowledgements,
            opened: world.processes.len() as u64,
            verified: checker.served,
            operations: world.steps,
            digest,
            ..Report::default()
        });
    };
    let place = format!(
        "n {}, q {}, {} nodes, step {}",
        world.shape.copies,
        world.shape.quorum,
        world.nodes.len(),
        world.steps
    );
    Err(Failure::new(NAME, seed, place, what))
}
