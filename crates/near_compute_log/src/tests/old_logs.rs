//! What becomes of a log that was taken over, while its new writer lives.

use tombolo_env::Completion;
use tombolo_segment::message::{Answer, Body, NodeStatus, RegionId};
use tombolo_storage::Log;

use super::*;

/// Long enough that whatever moves by itself has.
const LONG: Duration = Duration::from_secs(12);

/// One MiB of log and a bit, of more segments than one.
const ENTRIES: u64 = 1100;

/// Regions that the newest configuration of the old log names.
fn regions_named(history: &LogHistory<'_>) -> usize {
    decode(&history.record(5, 0)).expect("a lane").segments.iter().map(|segment| segment.regions.len()).sum()
}

/// Epoch 5 has written and died, epoch 9 has taken over and writes on.
fn taken_over(subject: &LogSubject, history: &LogHistory<'_>) -> (LogOffset, Arc<dyn Log>) {
    written(subject, history, ENTRIES);
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("all nodes are there");
    let log = history.open(9, 1).expect("opening");
    append(&subject.env, &*log, 0, &entry(0, 100)).expect("three nodes");
    (sealed, log)
}

fn is_whole(history: &LogHistory<'_>, sealed: LogOffset) {
    for epoch in [12, 13] {
        assert_eq!(
            history.read(5, 0, epoch, LogOffset::ZERO, sealed).expect("reading").len() as u64,
            ENTRIES
        );
    }
}

pub(super) fn a_log_outlives_all_nodes_one_after_the_other() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let (sealed, log) = taken_over(&subject, &history);
    for (life, address) in (90..).zip(&NODES) {
        run_for(&subject.env, LONG);
        nodes.start(address, life);
    }
    run_for(&subject.env, LONG);
    drop(log);
    is_whole(&history, sealed);
}

#[test]
fn a_log_that_was_taken_over_outlives_all_nodes_one_after_the_other() {
    a_log_outlives_all_nodes_one_after_the_other();
}

/// What the takeover has read is enough, and the store may come back late.
#[test]
fn a_log_that_was_taken_over_outlives_all_nodes_at_once_while_its_writer_lives() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let (subject, nodes, plan) = faulty(&env);
    let history = LogHistory::new(&subject);
    plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::Retry)).times(60));
    let (sealed, log) = taken_over(&subject, &history);
    (90..).zip(&NODES).for_each(|(life, address)| nodes.start(address, life));
    run_for(&subject.env, Duration::from_secs(120));
    assert_eq!(regions_named(&history), 0);
    drop(log);
    is_whole(&history, sealed);
}

/// The new writer is fenced when it publishes that the log is in objects.
pub(super) fn a_log_is_never_nowhere() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let (sealed, log) = taken_over(&subject, &history);
    history.chain.refuse_next(Error::new(ErrorKind::Fenced, "another has claimed"));
    run_for(&subject.env, LONG);
    drop(log);
    assert!(regions_named(&history) > 0, "nothing of it was published");
    // Unnamed objects are none.
    assert!(objects_put(&subject, &history) > 1);
    let context = history.context(12);
    subject.env.block_on(destage::delete_objects(&context, |_| true)).expect("they are deleted");
    is_whole(&history, sealed);
}

#[test]
fn a_log_that_becomes_objects_is_never_nowhere() {
    a_log_is_never_nowhere();
}

/// A flush names the log no more while its object is on the way to the store: nothing of it is
/// named again, and nothing stays.
#[test]
fn a_log_that_is_given_up_while_it_moves_leaves_nothing() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let (subject, nodes, plan) = faulty(&env);
    let history = LogHistory::new(&subject);
    let (_, log) = taken_over(&subject, &history);
    plan.inject(Rule::of_kind(RequestKind::Put, Fault::Delay(Duration::from_secs(5))).times(1));
    run_for(&subject.env, Duration::from_secs(3));
    assert_eq!(plan.injected(), 1, "its first segment is on its way");
    let record = history.record(5, 0);
    history.chain.unname(&record);
    history.free(&record, 9).expect("freeing");
    run_for(&subject.env, LONG);
    assert_eq!(objects_put(&subject, &history), 0);
    assert!(history.chain.named().iter().all(|named| named.id != record.id));
    assert!(nodes.bytes_taken() <= 6 * 80 * 1024, "{} bytes are taken by two segments", nodes.bytes_taken());
    drop(log);
}

/// What an epoch put of its last segment before it died, and named nowhere, may be shorter than
/// what its successor finds.
#[test]
fn an_object_that_was_put_before_the_last_records_stands_in_nobodys_way() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    written(&subject, &history, ENTRIES);
    let context = history.context(5);
    let identity = SegmentIdentity { incarnation: context.incarnation.0, epoch: 5, lane: 0, segment: 0 };
    subject
        .env
        .block_on(destage::put(&context, &identity, (100, Digest(1)), vec![0; 100].into()))
        .expect("it is put");
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("all nodes are there");
    let log = history.open(9, 1).expect("opening");
    run_for(&subject.env, LONG);
    assert_eq!(regions_named(&history), 0);
    drop(log);
    is_whole(&history, sealed);
}

/// Two answers for one loss would be one too many: of a log that was taken over and is read again
/// as of one that is taken over.
#[test]
fn what_all_nodes_lost_is_said_and_what_a_silent_one_may_hold_is_waited_for() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    written(&subject, &history, ENTRIES);
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("all nodes are there");
    let silent = nodes.0.lock().remove(NODES[0]).expect("a node");
    [(91, NODES[1]), (92, NODES[2])].into_iter().for_each(|(life, address)| nodes.start(address, life));
    let store = NearLogStore::new(
        &subject.env,
        Arc::new(nodes.clone()),
        Neighbours::at(&NODES),
        Replication::default(),
    );
    let (context, record) = (history.context(12), history.record(5, 0));
    let read = |store: &NearLogStore| {
        subject.env.block_on(async {
            let mut reader = store.read(&context, &record, LogOffset::ZERO, sealed).await?;
            let mut count = 0;
            while reader.next().await?.is_some() {
                count += 1;
            }
            Ok::<u64, Error>(count)
        })
    };
    assert_eq!(read(&store).expect_err("one may hold it").kind(), ErrorKind::Retry);
    nodes.0.lock().insert(NODES[0].into(), silent);
    assert_eq!(read(&store).expect("one holds it"), ENTRIES);
    nodes.start(NODES[0], 90);
    let lost = read(&store).expect_err("nobody holds it");
    assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
}

/// Of a log that its taker died on before it could move it.
pub(super) fn what_is_named_is_not_collected() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
    let history = LogHistory::new(&subject);
    let (sealed, log) = taken_over(&subject, &history);
    run_for(&subject.env, Duration::from_millis(500));
    drop(log);
    assert!(regions_named(&history) > 0);
    is_whole(&history, sealed);
}

#[test]
fn what_a_log_names_is_not_collected() {
    what_is_named_is_not_collected();
}

/// Something that is done once, after so many reads of regions.
type Then = Arc<Mutex<(u32, Option<Box<dyn FnOnce() + Send>>)>>;

/// Nodes beside which something happens.
struct Beside(Local, Then);

impl std::fmt::Debug for Beside {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Beside")
    }
}

impl Connect for Beside {
    fn connect(&self, env: &Env, address: &str) -> Result<Arc<dyn Peer>> {
        Ok(Arc::new(BesidePeer(self.0.connect(env, address)?, Arc::clone(&self.1))))
    }
}

struct BesidePeer(Arc<dyn Peer>, Then);

impl std::fmt::Debug for BesidePeer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BesidePeer")
    }
}

impl Peer for BesidePeer {
    fn call(&self, request: tombolo_segment::message::Request) -> Completion<Result<Answer>> {
        let is_read = matches!(request.body, Body::Read { .. });
        let answer = self.0.call(request);
        let act = {
            let mut then = self.1.lock();
            then.0 = then.0.saturating_sub(u32::from(is_read));
            if then.0 == 0 { then.1.take() } else { None }
        };
        if let Some(act) = act {
            act();
        }
        answer
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        self.0.status()
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.0.is_wanted_back(region)
    }

    fn domain(&self) -> Option<Arc<str>> {
        self.0.domain()
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

/// While one segment is written the next one is named already. The old writer writes on in the
/// middle of the takeover.
pub(super) fn all_segments_are_sealed() {
    for reads in 1..=3 {
        let world = World::new(7);
        let nodes = Local::with(&NODES);
        let subject = subject(&world.process("tester").env(), &nodes, 64 << 10);
        let history = LogHistory::new(&subject);
        let log = history.open(5, 1).expect("opening");
        for number in 0..50 {
            append(&subject.env, &*log, 0, &entry(number, 900)).expect("three nodes");
        }
        run_for(&subject.env, Duration::from_secs(1));
        assert_eq!(decode(&history.record(5, 0)).expect("a lane").segments.len(), 2);
        let acknowledged = Arc::new(Mutex::new(log.durable_through(0)));
        let told = Arc::clone(&acknowledged);
        let write_on = move || {
            let _refused = log.append(0, &entry(50, 900));
            *told.lock() = log.durable_through(0);
        };
        let then: Then = Arc::new(Mutex::new((reads, Some(Box::new(write_on)))));
        let beside = Arc::new(Beside(nodes.clone(), then));
        let store = NearLogStore::new(&subject.env, beside, Neighbours::at(&NODES), Replication::default());
        let (context, record) = (history.context(9), history.record(5, 0));
        let sealed = subject
            .env
            .block_on(store.fence(&context, &record, LogOffset::ZERO))
            .expect("all nodes are there");
        let acknowledged = *acknowledged.lock();
        assert!(sealed >= acknowledged, "{acknowledged} acknowledged, {sealed} taken over");
    }
}

#[test]
fn a_takeover_seals_every_segment() {
    all_segments_are_sealed();
}
