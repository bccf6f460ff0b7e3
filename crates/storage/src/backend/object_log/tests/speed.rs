//! How long a log's content takes to come from a store that is far away, in virtual time, and what
//! is held of it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tombolo_env::Env;
use tombolo_env::simulated::{Process, World};

use crate::backend::memory::MemoryObjectStore;
use crate::backend::object_log::ObjectLogStore;
use crate::conformance::log::{LogHistory, LogSubject, append, entry};
use crate::layer::RequestKind;
use crate::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{TraceObjectStore, Tracer};
use crate::log_memory::Uncounted;
use crate::{LogContext, LogEntry, LogMemory, LogOffset, LogReader, LogStore, ObjectStore, Result};

/// What each request takes.
const LATENCY: Duration = Duration::from_millis(25);

/// Books that know the most that was held.
#[derive(Debug)]
struct Most {
    lane_bytes_max: usize,
    held: AtomicUsize,
    most: AtomicUsize,
}

impl Most {
    fn new(lane_bytes_max: usize) -> Arc<Most> {
        Arc::new(Most { lane_bytes_max, held: AtomicUsize::new(0), most: AtomicUsize::new(0) })
    }
}

impl LogMemory for Most {
    fn lane_bytes_max(&self) -> usize {
        self.lane_bytes_max
    }

    fn grow(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(held, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A log in a store of which its successor is far away.
struct Far {
    process: Process,
    tracer: Tracer,
    subject: LogSubject,
    slow: Arc<dyn ObjectStore>,
}

impl Far {
    fn new() -> Far {
        let world = World::new(1);
        let process = world.process("process");
        let env = process.env();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let store = Arc::new(ObjectLogStore::new(&env, Arc::clone(&objects), true));
        let tracer = Tracer::new(&env);
        let throttle =
            Throttle { latency: Latency { p50: LATENCY, ..Latency::default() }, ..Throttle::default() };
        let slow = ThrottleObjectStore::new(
            &env,
            Arc::new(TraceObjectStore::new(Arc::clone(&objects), tracer.clone())),
            throttle,
        );
        Far { process, tracer, subject: LogSubject { env, store, objects }, slow: Arc::new(slow) }
    }

    /// Appends entries of these sizes, each an object of its own.
    fn write(&self, log: &dyn crate::Log, sizes: &[usize]) {
        for (number, bytes) in (0..).zip(sizes) {
            append(&self.subject.env, log, 0, &entry(number, *bytes)).expect("appended");
        }
    }

    fn successor(
        &self,
        history: &LogHistory<'_>,
        epoch: u64,
        memory: Arc<dyn LogMemory>,
    ) -> (ObjectLogStore, LogContext) {
        let store = ObjectLogStore::new(&self.subject.env, Arc::clone(&self.slow), true);
        (store, LogContext { objects: Arc::clone(&self.slow), memory, ..history.context(epoch) })
    }

    /// What `work` takes in latencies of the store, and its reads.
    fn measure<T: Send>(&self, work: impl Future<Output = T> + Send) -> (T, f64, u64) {
        self.tracer.reset();
        let began = self.subject.env.now();
        let outcome = self.process.block_on(work);
        let took = self.subject.env.now().since(began);
        (outcome, took.as_secs_f64() / LATENCY.as_secs_f64(), self.tracer.of_kind(RequestKind::Read).requests)
    }
}

/// All that is left; each entry is worked on for so long.
async fn rest(env: &Env, mut reader: Box<dyn LogReader>, work: Duration) -> Result<Vec<LogEntry>> {
    let mut entries = Vec::new();
    while let Some((entry, _)) = reader.next().await? {
        entries.push(entry);
        if !work.is_zero() {
            env.sleep(work).await;
        }
    }
    Ok(entries)
}

/// Fences a log of entries of these sizes, and reads it back: the latencies that it takes, the
/// reads, and the most that was held.
fn takeover(sizes: &[usize], lane_bytes_max: usize) -> (f64, u64, usize) {
    let far = Far::new();
    let history = LogHistory::new(&far.subject);
    far.write(&*history.open(1, 1).expect("opened"), sizes);
    let (record, books) = (history.record(1, 0), Most::new(lane_bytes_max));
    let (store, context) = far.successor(&history, 2, Arc::<Most>::clone(&books));
    let (entries, rounds, reads) = far.measure(async {
        let sealed = store.fence(&context, &record, LogOffset::ZERO).await?;
        rest(&context.env, store.read(&context, &record, LogOffset::ZERO, sealed).await?, Duration::ZERO)
            .await
    });
    let entries = entries.expect("replayed");
    assert_eq!(entries.len(), sizes.len());
    for ((number, bytes), found) in (0..).zip(sizes).zip(&entries) {
        assert_eq!(*found, entry(number, *bytes));
    }
    assert_eq!(books.held.load(Ordering::Relaxed), 0, "all of it was given back");
    (rounds, reads, books.most.load(Ordering::Relaxed))
}

#[test]
fn a_takeover_takes_a_few_round_trips_however_large_the_objects_are() {
    // (objects, bytes of each, round trips, reads for each object)
    for (objects, bytes, rounds_max, reads_max) in [
        (40, 500, 4.5, 2.5),
        (330, 100_000, 12.0, 1.5),
        (120, 400_000, 12.0, 2.5),
        (24, 3_000_000, 14.0, 6.0),
        (2, 20_000_000, 6.0, 20.0),
    ] {
        let (rounds, reads, most) = takeover(&vec![bytes; objects], usize::MAX);
        println!(
            "{objects} objects of {bytes} bytes: {rounds:.1} round trips, {reads} reads, {most} bytes held \
            at most"
        );
        assert!(rounds <= rounds_max, "{rounds} round trips for {objects} objects of {bytes} bytes");
        assert!(
            reads as f64 <= reads_max * objects as f64,
            "{reads} reads for {objects} objects of {bytes} bytes"
        );
        assert!(most <= (49 << 20) + bytes, "{most} bytes were held");
    }
}

#[test]
fn a_takeover_holds_no_more_of_the_log_than_its_share_of_the_memory() {
    let mixed: Vec<usize> =
        (0..200_usize).map(|number| [200, 100_000, 40_000, 700_000][number % 4]).collect();
    for (sizes, share) in [(&mixed, 1 << 20), (&mixed, 4 << 20), (&vec![100_000; 300], 1 << 20)] {
        let (_, _, most) = takeover(sizes, share);
        // The share, the object that is being read, and what the books round up.
        assert!(
            (share / 2..=share + 700_000 + (256 << 10)).contains(&most),
            "{most} bytes held of a share of {share}"
        );
    }
}

/// A replay that works on objects finds the next ones there.
#[test]
fn objects_come_while_those_before_are_worked_on() {
    const OBJECTS: u32 = 200;
    let far = Far::new();
    let history = LogHistory::new(&far.subject);
    far.write(&*history.open(1, 1).expect("opened"), &vec![300_000; OBJECTS as usize]);
    let record = history.record(1, 0);
    let (store, context) = far.successor(&history, 2, Arc::new(Uncounted));
    let sealed = far.subject.env.block_on(store.fence(&context, &record, LogOffset::ZERO)).expect("fenced");
    let other = far.successor(&history, 3, Arc::new(Uncounted));
    // With what the fence has kept, and of a log that another has fenced: nobody knows how long its
    // objects are.
    for ((store, context), more) in [((store, context), 2.0), (other, 8.0)] {
        let (entries, rounds, _) = far.measure(async {
            let reader = store.read(&context, &record, LogOffset::ZERO, sealed).await?;
            rest(&context.env, reader, LATENCY / 10).await
        });
        assert_eq!(entries.expect("replayed").len(), OBJECTS as usize);
        assert!(
            rounds <= f64::from(OBJECTS) / 10.0 + more,
            "{rounds} round trips, and the work alone takes {}",
            OBJECTS / 10
        );
    }
}

/// A follower that looks twice a second, beside a writer of 4 MB/s: a look takes a few round trips,
/// and one without news two small reads.
#[test]
fn a_followers_look_takes_a_few_round_trips() {
    let far = Far::new();
    let history = LogHistory::new(&far.subject);
    let log = history.open(1, 1).expect("opened");
    let record = history.record(1, 0);
    let (store, context) = far.successor(&history, 2, Arc::new(Uncounted));
    let mut from = LogOffset::ZERO;
    for look in 0..5 {
        far.write(&*log, &[100_000; 20]);
        let (read, rounds, reads) = far.measure(async {
            let mut reader = store.tail(&context, &record, from).await?;
            let mut entries = 0;
            while let Some((_, end)) = reader.next().await? {
                (entries, from) = (entries + 1, end);
            }
            Ok::<_, crate::Error>(entries)
        });
        assert_eq!(read.expect("followed"), 20, "look {look}");
        assert!(rounds <= 7.5 && reads <= 40, "{rounds} round trips, {reads} reads");
        let (empty, rounds, reads) = far.measure(async {
            rest(&context.env, store.tail(&context, &record, from).await?, Duration::ZERO).await
        });
        assert!(empty.expect("followed").is_empty());
        assert!(rounds <= 2.1 && reads == 2, "{rounds} round trips, {reads} reads");
        let bytes = far.tracer.of_kind(RequestKind::Read).bytes;
        assert!(bytes <= 200, "{bytes} bytes for no news");
    }
}
