//! Nodes that answer, but late.

use tombolo_env::{Completion, TaskClass, completion};
use tombolo_segment::message::{Answer, NodeStatus, RegionId, Request};

use super::*;

/// Nodes whose answers take a while, by their address.
#[derive(Debug)]
struct Late {
    nodes: Local,
    delays: Arc<Mutex<BTreeMap<String, Duration>>>,
    /// It is the requests that take it.
    sends_late: bool,
}

#[derive(Debug)]
struct LatePeer {
    env: Env,
    peer: Arc<dyn Peer>,
    delays: Arc<Mutex<BTreeMap<String, Duration>>>,
    sends_late: bool,
}

impl Connect for Late {
    fn connect(&self, env: &Env, address: &str) -> Result<Arc<dyn Peer>> {
        let (peer, delays) = (self.nodes.connect(env, address)?, Arc::clone(&self.delays));
        Ok(Arc::new(LatePeer { env: env.clone(), peer, delays, sends_late: self.sends_late }))
    }
}

impl Peer for LatePeer {
    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        let delay = self.delays.lock().get(self.peer.address()).copied().unwrap_or_default();
        let (completer, late) = completion();
        let (env, peer) = (self.env.clone(), Arc::clone(&self.peer));
        let sent = (!self.sends_late).then(|| peer.call(request.clone()));
        let wait = async move {
            env.sleep(delay).await;
            if let Some(answer) = sent.unwrap_or_else(|| peer.call(request)).await {
                completer.complete(answer);
            }
        };
        self.env.spawn(TaskClass::Network, "a late answer", wait).detach();
        late
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        self.peer.status()
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.peer.is_wanted_back(region)
    }

    fn domain(&self) -> Option<Arc<str>> {
        self.peer.domain()
    }

    fn address(&self) -> &str {
        self.peer.address()
    }
}

/// Writes for ten seconds to nodes whose answers take so many milliseconds. The node that held the
/// log at first and is named no more, if there is one, and how many regions were ever made.
fn written_to(delays: &[(&str, u64)]) -> (Vec<String>, u64) {
    let world = World::new(7);
    let env = world.process("tester").env();
    let addresses: Vec<&str> = delays.iter().map(|(address, _)| *address).collect();
    let nodes = Local::with(&addresses);
    let late = Arc::new(Mutex::new(BTreeMap::new()));
    let connect = Arc::new(Late { nodes: nodes.clone(), delays: Arc::clone(&late), sends_late: false });
    let store = NearLogStore::new(&env, connect, Neighbours::at(&addresses), Replication::default());
    let subject = LogSubject {
        env: env.clone(),
        store: Arc::new(store),
        objects: Arc::new(MemoryObjectStore::unnamed(&env)),
    };
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    let named = || -> Vec<String> {
        let lane = decode(&history.record(5, 0)).expect("a lane");
        lane.segments.into_iter().flat_map(|segment| segment.regions).map(|region| region.address).collect()
    };
    let first = named();
    *late.lock() = delays
        .iter()
        .map(|(address, millis)| ((*address).to_owned(), Duration::from_millis(*millis)))
        .collect();
    for number in 0..500 {
        append(&env, &*log, 0, &entry(number, 100)).expect("all nodes answer");
        env.block_on(env.sleep(Duration::from_millis(20)));
    }
    let last = named();
    let names = nodes.0.lock().values().map(|node| node.lock().occupancy().names).sum();
    (first.into_iter().filter(|node| !last.contains(node)).collect(), names)
}

pub(super) fn a_slow_one_is_replaced() {
    let (left, regions) = written_to(&[("a:1", 1), ("b:1", 120), ("c:1", 1), ("d:1", 2)]);
    assert_eq!((left, regions), (vec!["b:1".to_owned()], 4));
}

#[test]
fn a_node_that_is_slow_for_long_is_replaced_once() {
    a_slow_one_is_replaced();
}

#[test]
fn nodes_that_are_no_slower_than_the_others_or_have_no_spare_stay() {
    let nobody = (Vec::<String>::new(), 3);
    assert_eq!(written_to(&[("a:1", 60), ("b:1", 80), ("c:1", 60), ("d:1", 1)]), nobody, "no slower");
    assert_eq!(written_to(&[("a:1", 1), ("b:1", 15), ("c:1", 1), ("d:1", 1)]), nobody, "not slow");
    assert_eq!(written_to(&[("a:1", 1), ("b:1", 120), ("c:1", 1)]), nobody, "no spare");
}

/// What a writer tells as it closes is with nodes before it has closed: anything still to be sent
/// ends with its process.
#[test]
fn a_log_that_was_closed_is_shown_whole_though_its_process_ends_at_once() {
    let world = World::new(7);
    let nodes = Local::with(&NODES);
    let writer = world.process("writer");
    let delays =
        Arc::new(Mutex::new(NODES.map(|address| (address.to_owned(), Duration::from_millis(50))).into()));
    let connect = Arc::new(Late { nodes: nodes.clone(), delays, sends_late: true });
    let store = NearLogStore::new(&writer.env(), connect, Neighbours::at(&NODES), Replication::default());
    let subject = LogSubject {
        env: writer.env(),
        store: Arc::new(store),
        objects: Arc::new(MemoryObjectStore::unnamed(&writer.env())),
    };
    let env = world.process("follower").env();
    is_shown_whole_once_closed(&writer, &subject, 11, &env, &following(&env, &nodes));
}
