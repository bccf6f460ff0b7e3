//! The log store on nodes of this process.

mod logged;
mod nodes;
mod old_logs;
mod reclaim;
mod refused;
mod slow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::simulated::{Process, World};
use tombolo_env::{Env, within};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::Digest;
use tombolo_segment::message::NodeIncarnation;
use tombolo_segment::peer::{LocalPeer, Peer};
use tombolo_segment::region::Regions;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::conformance::log::{LogHistory, LogSubject, append, check_log_store, entry};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{
    ConfigurationChain as _, Epoch, Error, ErrorKind, Life, LogContext, LogMemory, LogOffset, LogRecord,
    LogStore, ObjectKind, Placement, Purpose, Request, Result,
};

use crate::configuration::{decode, encode};
use crate::{Connect, NearLogStore, Neighbours, Replication, destage};

/// Nodes in this process.
#[derive(Clone, Debug, Default)]
struct Local(Arc<Mutex<BTreeMap<String, Arc<Mutex<Regions>>>>>);

impl Local {
    fn with(addresses: &[&str]) -> Local {
        let local = Local::default();
        (1..).zip(addresses).for_each(|(life, address)| local.start(address, life));
        local
    }

    /// Starts a node, or starts it again without its memory.
    fn start(&self, address: &str, life: u64) {
        let fresh = Regions::new(NodeIncarnation(life), 4 << 30);
        let mut nodes = self.0.lock();
        match nodes.get(address) {
            Some(node) => *node.lock() = fresh,
            None => drop(nodes.insert(address.into(), Arc::new(Mutex::new(fresh)))),
        }
    }

    fn bytes_taken(&self) -> u64 {
        self.0.lock().values().map(|node| node.lock().occupancy().bytes_taken).sum()
    }
}

impl Connect for Local {
    fn connect(&self, _env: &Env, address: &str) -> Result<Arc<dyn Peer>> {
        match self.0.lock().get(address) {
            Some(node) => Ok(Arc::new(LocalPeer::new(address, Arc::clone(node)))),
            None => Err(Error::new(ErrorKind::Invalid, "no such node")),
        }
    }
}

const NODES: [&str; 3] = ["a:1", "b:1", "c:1"];

fn subject(env: &Env, nodes: &Local, segment_bytes: u32) -> LogSubject {
    let replication = Replication { segment_bytes, ..Replication::default() };
    let store = NearLogStore::new(env, Arc::new(nodes.clone()), Neighbours::at(&NODES), replication);
    LogSubject {
        env: env.clone(),
        store: Arc::new(store),
        objects: Arc::new(MemoryObjectStore::unnamed(env)),
    }
}

/// One with small segments, whose objects' store fails as it is told to; and its nodes.
fn faulty(env: &Env) -> (LogSubject, Local, FaultPlan) {
    let (plan, nodes) = (FaultPlan::scripted(), Local::with(&NODES));
    let objects =
        Arc::new(FaultObjectStore::new(env, Arc::new(MemoryObjectStore::unnamed(env)), plan.clone()));
    let subject = LogSubject { objects, ..subject(env, &nodes, 64 << 10) };
    (subject, nodes, plan)
}

#[test]
fn keeps_the_promises_of_a_log_store() {
    for segment_bytes in [64 << 10, 8 << 20] {
        let env = Env::real();
        check_log_store(&subject(&env, &Local::with(&NODES), segment_bytes));
        let world = World::new(7);
        let process = world.process("tester");
        check_log_store(&subject(&process.env(), &Local::with(&NODES), segment_bytes));
    }
}

fn run_for(env: &Env, time: Duration) {
    env.block_on(env.sleep(time));
}

/// Segments that are objects.
fn objects_put(subject: &LogSubject, history: &LogHistory<'_>) -> usize {
    let prefix = destage::prefix(history.context(0).incarnation);
    let list = subject.objects.list(Request::new(Purpose::Log, Epoch::NONE), &prefix, None, 1000);
    subject.env.block_on(list).expect("a list").objects.len()
}

/// How many entries of epoch 5's log a takeover finds.
fn entries_after_takeover(history: &LogHistory<'_>, epoch: u64) -> u64 {
    let sealed = history.fence(5, 0, epoch, LogOffset::ZERO).expect("no more was lost than may be");
    history.read(5, 0, epoch, LogOffset::ZERO, sealed).expect("reading").len() as u64
}

fn written(subject: &LogSubject, history: &LogHistory<'_>, entries: u64) -> LogOffset {
    let log = history.open(5, 1).expect("opening");
    (0..entries).fold(LogOffset::ZERO, |_, number| {
        append(&subject.env, &*log, 0, &entry(number, 900)).expect("appending")
    })
}

#[test]
fn the_loss_of_one_node_loses_nothing_and_of_two_is_said() {
    for lost in [1, 2] {
        let world = World::new(7);
        let nodes = Local::with(&NODES);
        let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
        let history = LogHistory::new(&subject);
        let end = written(&subject, &history, 300);
        NODES.iter().take(lost).for_each(|address| nodes.start(address, 90));
        match (lost, history.fence(5, 0, 9, LogOffset::ZERO)) {
            (1, sealed) => {
                let sealed = sealed.expect("one may be lost");
                assert!(sealed >= end);
                assert_eq!(history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading").len(), 300);
                // It is on two nodes again, of which one more may be lost.
                nodes.start("b:1", 91);
                let again = history.fence(5, 0, 10, LogOffset::ZERO).expect("another one was lost since");
                assert_eq!(history.read(5, 0, 10, LogOffset::ZERO, again).expect("reading").len(), 300);
            }
            (_, sealed) => assert_eq!(sealed.expect_err("too much was lost").kind(), ErrorKind::Corrupt),
        }
    }
}

/// A manifest that says so of a log is not believed, whether entries are read one by one or many at
/// once.
#[test]
fn a_log_that_is_to_end_within_an_entry_is_told_behind_those_before_it() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let end = written(&subject, &history, 20);
    history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    assert_eq!(history.read(5, 0, 9, LogOffset::ZERO, end).expect("reading").len(), 20);
    let within = LogOffset::new(end.segment(), end.byte() - 1);
    let error = history.read(5, 0, 9, LogOffset::ZERO, within).expect_err("within an entry");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_takeover_copies_only_what_too_few_hold() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    written(&subject, &history, 300);
    let names =
        |of: &[&str]| of.iter().map(|node| nodes.0.lock()[*node].lock().occupancy().names).sum::<u64>();
    let takes = |epoch| assert_eq!(entries_after_takeover(&history, epoch), 300);
    let before = names(&NODES);
    takes(9);
    assert_eq!(names(&NODES), before, "three hold it");
    nodes.start("a:1", 90);
    let before = names(&NODES);
    takes(10);
    assert_eq!(names(&NODES), before, "two hold it, and are all that counts from here on");
    nodes.start("b:1", 91);
    takes(11);
    assert!(names(&["a:1", "b:1"]) > 0, "one held it");
    nodes.start("c:1", 92);
    takes(12);
}

#[test]
fn an_append_that_nodes_answer_at_once_is_durable_when_it_returns_and_one_after_the_fence_is_refused() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    assert!(!log.wants_gathered(0), "nothing is known of its nodes");
    append(&subject.env, &*log, 0, &entry(0, 900)).expect("appending");
    // In the first segment, whose configuration is published.
    for number in 1..40 {
        let appended = log.append(0, &entry(number, 900)).expect("appending");
        assert!(appended.accepted.is_none() && log.durable_through(0) == appended.end, "entry {number}");
        assert!(log.wants_gathered(0));
    }
    history.fence(5, 0, 9, LogOffset::ZERO).expect("all nodes answer");
    // The answers of the nodes end the lane within the call.
    let refused = log
        .append(0, &entry(40, 900))
        .expect("it was sent")
        .accepted
        .and_then(|mut accepted| accepted.try_take());
    assert_eq!(refused.expect("an answer").expect_err("fenced").kind(), ErrorKind::Fenced);
    assert!(!log.wants_gathered(0), "it was not answered as one that is held");
}

/// A follower on a machine of its own: how many entries it shows, and what it says that it lacks.
fn follower(env: &Env, nodes: &Local, history: &LogHistory<'_>) -> Result<(usize, Option<Error>)> {
    followed(env, &following(env, nodes), history, LogOffset::ZERO)
}

fn following(env: &Env, nodes: &Local) -> NearLogStore {
    NearLogStore::new(env, Arc::new(nodes.clone()), Neighbours::at(&NODES), Replication::default())
}

/// What `store` shows of the log from `from` on, and what it says that it lacks.
fn followed(
    env: &Env,
    store: &dyn LogStore,
    history: &LogHistory<'_>,
    from: LogOffset,
) -> Result<(usize, Option<Error>)> {
    let (context, record) = (history.context(5), history.record(5, 0));
    env.block_on(async {
        let mut reader = store.tail(&context, &record, from).await?;
        let mut count = 0;
        while reader.next().await?.is_some() {
            count += 1;
        }
        Ok((count, reader.lacks()))
    })
}

/// It was acknowledged, and nobody but its dead writer knows.
#[test]
fn a_follower_says_that_it_lacks_what_nobody_tells() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let writer = world.process("writer");
    let subject = subject(&writer.env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    let env = world.process("follower").env();
    let told = (0..10).fold(LogOffset::ZERO, |_, number| {
        append(&subject.env, &*log, 0, &entry(number, 900)).expect("appending")
    });
    let (shown, lacks) = follower(&env, &nodes, &history).expect("all nodes answer");
    assert!(shown == 10 && lacks.is_none(), "a writer that lives tells: {shown} entries, {lacks:?}");
    let appended = log.append(0, &entry(10, 900)).expect("appending");
    assert_eq!(log.durable_through(0), appended.end);
    writer.kill();
    let (shown, lacks) = follower(&env, &nodes, &history).expect("all nodes answer");
    assert_eq!((shown, lacks.map(|error| error.kind())), (10, Some(ErrorKind::Retry)));
    // Tables hold all that lies before where it begins.
    for (from, expected) in [(told, Some(ErrorKind::Retry)), (appended.end, None)] {
        let (shown, lacks) =
            followed(&env, &following(&env, &nodes), &history, from).expect("all nodes answer");
        assert_eq!((shown, lacks.map(|error| error.kind())), (0, expected), "from {from}");
    }
}

/// Closes a log of so many entries, ends its process at once, and follows it by `store`: nothing
/// tells of the last of them but the record that it writes as it closes.
fn is_shown_whole_once_closed(
    writer: &Process,
    subject: &LogSubject,
    count: u64,
    env: &Env,
    store: &dyn LogStore,
) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    for number in 0..count {
        append(&subject.env, &*log, 0, &entry(number, 900)).expect("all nodes answer");
    }
    subject.env.block_on(log.close()).expect("all nodes answer");
    writer.kill();
    let (shown, lacks) = followed(env, store, &history, LogOffset::ZERO).expect("all nodes answer");
    assert!(shown as u64 == count && lacks.is_none(), "{shown} of {count} entries, {lacks:?}");
}

#[test]
fn a_follower_shows_all_of_a_log_that_was_closed() {
    // Of one segment; and of one that has ended just now and the next one.
    for count in [11, 75] {
        let world = World::new(7);
        let nodes = Local::with(&NODES);
        let writer = world.process("writer");
        let subject = subject(&writer.env(), &nodes, 64 << 10);
        let env = world.process("follower").env();
        is_shown_whole_once_closed(&writer, &subject, count, &env, &following(&env, &nodes));
    }
}

#[test]
fn a_follower_that_reaches_one_node_of_three_shows_nothing_as_all() {
    let world = World::new(7);
    let (nodes, reached) = (Local::with(&NODES), Local::with(&NODES));
    let env = world.process("tester").env();
    let subject = subject(&env, &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    for number in 0..10 {
        append(&env, &*log, 0, &entry(number, 900)).expect("appending");
    }
    run_for(&env, Duration::from_secs(1));
    let all = nodes.0.lock().clone();
    for (count, expected) in [(3, true), (2, true), (1, false), (0, false)] {
        *reached.0.lock() =
            all.iter().take(count).map(|(address, node)| (address.clone(), Arc::clone(node))).collect();
        match follower(&env, &reached, &history) {
            Ok((shown, lacks)) => assert!(
                expected && shown == 10 && lacks.is_none(),
                "{shown} entries from {count} nodes, {lacks:?}"
            ),
            Err(error) => assert!(!expected && error.kind() == ErrorKind::Retry, "{count} nodes: {error}"),
        }
    }
}

#[test]
fn freeing_a_log_goes_on_while_its_store_fails_in_passing() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let (subject, _nodes, plan) = faulty(&env);
    let history = LogHistory::new(&subject);
    written(&subject, &history, 3);
    history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    let identity =
        SegmentIdentity { incarnation: history.context(9).incarnation.0, epoch: 5, lane: 0, segment: 0 };
    let name = destage::name(&identity, (1, Digest(7))).expect("a name");
    let request = Request::new(Purpose::Log, Epoch(5));
    let put = subject.objects.put_if_absent(
        request,
        &name,
        Placement::new(ObjectKind::Log, Life::Short),
        vec![1].into(),
    );
    env.block_on(put).expect("it is put");
    for kind in [RequestKind::List, RequestKind::Delete] {
        plan.inject(Rule::of_kind(kind, Fault::Error(ErrorKind::Retry)).times(3));
    }
    history.free(&history.record(5, 0), 9).expect("what passes is waited for");
    let left = env
        .block_on(subject.objects.list(request, &destage::prefix(history.context(9).incarnation), None, 10))
        .expect("a list");
    assert!(left.objects.is_empty(), "{left:?}");
}

#[test]
fn too_few_nodes_are_told_with_what_is_wrong_with_the_others() {
    let world = World::new(7);
    let nodes = Local::with(&NODES[..1]);
    let full = Arc::new(Mutex::new(Regions::new(NodeIncarnation(2), 1024)));
    nodes.0.lock().insert(NODES[1].into(), full);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let told = history.open(5, 1).expect_err("one of three is not enough").to_string();
    assert!(
        told.contains("b:1: ") && told.contains("c:1: no such node") && !told.contains("a:1: "),
        "{told}"
    );
}

#[test]
fn a_living_writer_repairs_what_nodes_lose_one_after_the_other() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    let mut written = 0;
    for life in 10..22 {
        for _ in 0..20 {
            append(&subject.env, &*log, 0, &entry(written, 900)).expect("two of three are enough");
            written += 1;
        }
        nodes.start(NODES[life % 3], life as u64);
        run_for(&subject.env, Duration::from_secs(12));
    }
    assert_eq!(entries_after_takeover(&history, 9), written);
}

/// Memory for a few segments.
#[derive(Debug)]
struct Little;

impl LogMemory for Little {
    fn lane_bytes_max(&self) -> usize {
        1 << 20
    }

    fn grow(&self, _bytes: usize) {}

    fn shrink(&self, _bytes: usize) {}
}

/// A writer whose memory is short dies before its segment is an object, and before a configuration
/// names that.
fn what_becomes_an_object_is_never_nowhere() {
    for is_put in [false, true] {
        let world = World::new(7);
        let env = world.process("tester").env();
        let (subject, _nodes, plan) = faulty(&env);
        let history = LogHistory::new(&subject);
        let chain = Arc::clone(&history.chain);
        let fenced = move || chain.refuse_next(Error::new(ErrorKind::Fenced, "another has claimed"));
        let fault =
            if is_put { Fault::After(Arc::new(fenced)) } else { Fault::Delay(Duration::from_secs(3600)) };
        plan.inject(Rule::of_kind(RequestKind::Put, fault).times(1));
        let context = LogContext { memory: Arc::new(Little), ..history.context(5) };
        let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
        // More than half of the memory, at which the oldest segment is put.
        let count =
            (0..700).take_while(|number| append(&env, &*log, 0, &entry(*number, 900)).is_ok()).count();
        run_for(&env, Duration::from_secs(1));
        assert_eq!(plan.injected(), 1, "a segment is put");
        let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("all of it is somewhere");
        let found = history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading").len();
        assert!(found >= count && count > 550, "{found} of {count}");
    }
}

#[test]
fn a_segment_that_becomes_an_object_is_never_nowhere() {
    what_becomes_an_object_is_never_nowhere();
}

/// A writer that waits for nothing gets no more memory than there is, though time stands still:
/// what it has is on its way to an object.
#[test]
fn appends_that_nobody_waits_for_stay_within_the_memory() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let (subject, _nodes, plan) = faulty(&env);
    let history = LogHistory::new(&subject);
    plan.inject(Rule::of_kind(RequestKind::Put, Fault::Delay(Duration::from_secs(3600))).times(1));
    let context = LogContext { memory: Arc::new(Little), ..history.context(5) };
    let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
    let refused = (0..5000)
        .find_map(|number| log.append(0, &entry(number, 900)).err().map(|error| (number, error.kind())));
    let (number, kind) = refused.expect("not all of them have room");
    assert_eq!(kind, ErrorKind::Busy);
    assert!((1 << 20) / 1000 < number && number < (1 << 20) / 900, "{number}");
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::DestagedFreedBeforePut, what_becomes_an_object_is_never_nowhere);
    notices(Mutant::DestagedFreedBeforeNamed, what_becomes_an_object_is_never_nowhere);
    notices(Mutant::OldLogNotMoved, old_logs::a_log_outlives_all_nodes_one_after_the_other);
    notices(Mutant::OldLogFreedBeforeNamed, old_logs::a_log_is_never_nowhere);
    notices(Mutant::NearCollectsNamed, old_logs::what_is_named_is_not_collected);
    notices(Mutant::NearSealsLastOnly, old_logs::all_segments_are_sealed);
    notices(Mutant::SegmentSettledIgnored, what_was_published_binds);
    notices(Mutant::SegmentKeepsSlow, slow::a_slow_one_is_replaced);
    notices(Mutant::NearInFlightTakenAsFailed, reclaim::a_writer_without_room_is_told_that_and_others_go_on);
    notices(Mutant::NearReclaimNotDestaged, reclaim::a_drain_without_a_spare_node_ends);
}

#[test]
fn memory_is_given_back_by_a_trim_and_by_a_flush_of_an_old_log() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    let end = (0..500).fold(LogOffset::ZERO, |_, number| {
        append(&subject.env, &*log, 0, &entry(number, 900)).expect("appending")
    });
    let before = nodes.bytes_taken();
    log.trim(0, end).expect("trimming");
    assert!(nodes.bytes_taken() * 2 < before, "{} of {before}", nodes.bytes_taken());
    history.fence(5, 0, 9, end).expect("fencing");
    let early = history.read(5, 0, 9, LogOffset::ZERO, end).expect_err("most of it is gone");
    assert_eq!(early.kind(), ErrorKind::Corrupt, "{early}");
    let record = history.record(5, 0);
    history.free(&record, 9).expect("freeing");
    history.chain.unname(&record);
    drop(log);
    let _next = history.open(9, 1).expect("opening");
    run_for(&subject.env, Duration::from_secs(1));
    assert!(
        nodes.bytes_taken() <= 3 * 80 * 1024,
        "{} bytes are taken by one empty segment",
        nodes.bytes_taken()
    );
}

/// The machines know how long a settled segment is and what it holds: regions that say otherwise
/// are no answer.
fn what_was_published_binds() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    written(&subject, &history, 30);
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("all nodes are there");
    assert_eq!(history.fence(5, 0, 10, LogOffset::ZERO).expect("again"), sealed);
    let mut record = history.record(5, 0);
    let mut lane = decode(&record).expect("a lane");
    let settled = lane.segments[0].settled.as_mut().expect("taken over");
    settled.1 = Digest(settled.1.0 ^ 1);
    record.configuration = encode(&lane).expect("a configuration");
    subject.env.block_on(history.chain.publish(record)).expect("publishing");
    let error = history.fence(5, 0, 12, LogOffset::ZERO).expect_err("nobody holds that");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn what_a_takeover_has_published_binds_the_next() {
    what_was_published_binds();
}

/// A node that is named twice, by its address and a host's name say, holds one copy.
#[test]
fn a_node_of_two_names_holds_no_segment_twice() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let (first, again) = (Arc::clone(&nodes.0.lock()[NODES[0]]), NODES[1].to_owned());
    nodes.0.lock().insert(again, first);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    written(&subject, &history, 30);
    let lives_of = |record: &LogRecord| {
        let regions =
            decode(record).expect("a lane").segments.into_iter().flat_map(|segment| segment.regions);
        let mut lives: Vec<u64> = regions.map(|region| region.incarnation).collect();
        lives.sort_unstable();
        lives
    };
    assert_eq!(lives_of(&history.record(5, 0)), [1, 3]);
    history.fence(5, 0, 9, LogOffset::ZERO).expect("both nodes are there");
    assert_eq!(lives_of(&history.record(5, 0)), [1, 3]);
}

/// A process that takes a log over frees its regions: a writer that stood still meanwhile hears
/// nothing of it from the nodes at once, and the chain knows why.
#[test]
fn a_writer_that_stood_still_while_its_log_was_taken_over_learns_that() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let tester = world.process("tester");
    let subject = subject(&tester.env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    append(&subject.env, &*log, 0, &entry(0, 900)).expect("three nodes");
    (10..).zip(&NODES).for_each(|(life, address)| nodes.start(address, life));
    history.chain.refuse_next(Error::new(ErrorKind::Fenced, "epoch 9 holds it"));
    let end = log.append(0, &entry(1, 900)).expect("room").end;
    let waiting = log.durable(0, end);
    tester.pause();
    world.run_for(Duration::from_secs(10));
    tester.resume();
    let told = tester.block_on(waiting).expect("an answer").expect_err("nobody holds it");
    assert_eq!(told.kind(), ErrorKind::Fenced, "{told}");
}
