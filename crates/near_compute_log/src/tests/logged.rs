//! What lasts is logged when it begins, not at each attempt.

use tombolo_segment::announce::{self, Announcer, Place};
use tombolo_segment::message::NodeMedium;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::refused::{MORE, append_all, on_a_chain_that_may_refuse};
use super::*;

/// Hears what this crate logs.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Lines so far that have these words.
    fn with(&self, words: &str) -> usize {
        self.0.lock().iter().filter(|line| line.contains(words)).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("tombolo_near_compute_log")
            && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn a_store_that_refuses_segments_is_logged_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let world = World::new(7);
        let env = world.process("tester").env();
        let (subject, nodes, plan) = faulty(&env);
        let history = LogHistory::new(&subject);
        let log = history.open(5, 1).expect("opening");
        for number in 0..200 {
            append(&env, &*log, 0, &entry(number, 900)).expect("three nodes");
        }
        let refuse =
            |kind, times| plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(kind)).times(times));
        refuse(ErrorKind::OutOfSpace, 40);
        // No other node takes its regions: they become objects.
        nodes.0.lock()["a:1"].lock().drain();
        run_for(&env, Duration::from_secs(4));
        assert!((5..40).contains(&plan.injected()), "{} attempts", plan.injected());
        assert_eq!(lines.with("refuses a segment"), 1, "{lines:?}");
        refuse(ErrorKind::PermissionDenied, 40);
        run_for(&env, Duration::from_secs(60));
        assert_eq!(plan.injected(), 80);
        assert_eq!(
            (lines.with("refuses a segment"), lines.with("takes segments of the log again")),
            (2, 1),
            "{lines:?}"
        );
    });
}

/// Nodes that announce themselves in the subject's store.
fn announced(subject: &LogSubject, nodes: &Local) -> Neighbours {
    let env = &subject.env;
    let place = || Place::Store(Arc::clone(&subject.objects));
    for address in NODES {
        let status = nodes.0.lock()[address].lock().status(NodeMedium::Memory, address);
        let mut announcer = Announcer::new(env, place(), "near", address).expect("a name");
        env.block_on(announcer.announce(status)).expect("a store");
    }
    let registry = announce::Registry::new(env, place(), "near").expect("a name");
    Neighbours::announced(env, Arc::new(nodes.clone()), registry)
}

#[test]
fn a_registry_that_cannot_be_read_is_logged_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let world = World::new(7);
        let env = world.process("tester").env();
        let (subject, nodes, plan) = faulty(&env);
        let neighbours = announced(&subject, &nodes);
        let store = Arc::new(NearLogStore::of(&env, neighbours, Replication::default()));
        let told = store.survival();
        assert!(
            told.store.contains("nodes that announce themselves") && !told.store.contains('0'),
            "{}",
            told.store
        );
        let subject = LogSubject { store: store.clone(), ..subject };
        let history = LogHistory::new(&subject);
        let _log = history.open(5, 1).expect("three nodes");
        assert!(store.survival().store.contains("on 3 nodes"), "{}", store.survival().store);
        plan.inject(Rule::of_kind(RequestKind::List, Fault::Error(ErrorKind::PermissionDenied)).times(10));
        run_for(&env, Duration::from_secs(60 * 8));
        assert!(plan.injected() > 5, "{} looks", plan.injected());
        assert_eq!(lines.with("not known anew"), 1, "{lines:?}");
        run_for(&env, Duration::from_secs(60 * 8));
        assert_eq!((lines.with("not known anew"), lines.with("found again")), (1, 1), "{lines:?}");
    });
}

/// An opening may give up within the list: the next look is one.
#[test]
fn a_look_for_nodes_that_is_given_up_hinders_no_other() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let (subject, nodes, plan) = faulty(&env);
    let neighbours = announced(&subject, &nodes);
    plan.inject(Rule::of_kind(RequestKind::List, Fault::Delay(Duration::from_secs(60))).times(1));
    assert!(
        env.block_on(within(&env, Duration::from_secs(1), neighbours.look(3))).is_none(),
        "it is given up"
    );
    env.block_on(neighbours.look(3)).expect("a list");
    assert_eq!(neighbours.nodes().len(), 3);
}

#[test]
fn a_chain_that_takes_no_configuration_is_logged_once_for_each_kind_of_error() {
    let lines = Lines::default();
    let act = || {
        on_a_chain_that_may_refuse(|env, subject, _, context, chain| {
            let log = env.block_on(subject.store.open(&context, 1)).expect("opening");
            chain.refuse_by_turns(&[ErrorKind::Retry, ErrorKind::OutcomeUnknown]);
            append_all(&*log, 0..MORE);
            run_for(env, Duration::from_secs(10));
            assert_eq!(lines.with("a configuration of the log is not taken"), 2, "{lines:?}");
            chain.accept();
            run_for(env, Duration::from_secs(10));
            assert_eq!(lines.with("configurations of the log are taken again"), 1, "{lines:?}");
        });
    };
    tracing::subscriber::with_default(lines.clone(), act);
}
