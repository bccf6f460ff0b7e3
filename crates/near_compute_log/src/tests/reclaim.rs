//! Nodes that want their memory back, or have none left, while writers live.

use super::*;

/// So long a drain is waited for.
const DRAIN: Duration = Duration::from_secs(30);

fn taken(nodes: &Local, address: &str) -> u64 {
    nodes.0.lock()[address].lock().occupancy().bytes_taken
}

/// A database that writes on, or does not, while its nodes do something.
fn living(
    addresses: &[&str],
    writes_on: bool,
    act: impl Fn(&Local),
    judge: impl Fn(&LogSubject, &LogHistory<'_>, &Local),
) {
    let world = World::new(7);
    let nodes = Local::with(addresses);
    let env = world.process("tester").env();
    let replication = Replication { segment_bytes: 64 << 10, ..Replication::default() };
    let store = NearLogStore::new(&env, Arc::new(nodes.clone()), Neighbours::at(addresses), replication);
    let subject = LogSubject {
        env: env.clone(),
        store: Arc::new(store),
        objects: Arc::new(MemoryObjectStore::unnamed(&env)),
    };
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("opening");
    let mut written = 0;
    let mut write = |count| {
        for _ in 0..count {
            append(&env, &*log, 0, &entry(written, 900)).expect("two of three are enough");
            written += 1;
        }
    };
    write(250);
    act(&nodes);
    for _ in 0..30 {
        write(if writes_on { 2 } else { 0 });
        run_for(&env, DRAIN / 30);
    }
    judge(&subject, &history, &nodes);
    write(30);
    assert_eq!(entries_after_takeover(&history, 9), written);
}

/// Of three nodes that hold three copies one drains: what it holds goes to the object store.
pub(super) fn a_drain_without_a_spare_node_ends() {
    for writes_on in [true, false] {
        living(
            &NODES,
            writes_on,
            |nodes| nodes.0.lock()["a:1"].lock().drain(),
            |subject, history, nodes| {
                assert_eq!(taken(nodes, "a:1"), 0);
                assert!(objects_put(subject, history) > 0);
            },
        );
    }
}

#[test]
fn a_node_drains_though_no_other_takes_its_regions() {
    a_drain_without_a_spare_node_ends();
}

#[test]
fn a_node_drains_to_a_spare_one() {
    let addresses = ["a:1", "b:1", "c:1", "d:1"];
    living(
        &addresses,
        true,
        |nodes| nodes.0.lock()["a:1"].lock().drain(),
        |subject, history, nodes| {
            assert_eq!(taken(nodes, "a:1"), 0);
            assert_eq!(objects_put(subject, history), 0);
        },
    );
}

/// All nodes want half of their memory back.
#[test]
fn memory_that_all_nodes_want_back_is_given_back() {
    let halve = |nodes: &Local| {
        for address in NODES {
            let half = taken(nodes, address) / 2;
            nodes.0.lock()[address].lock().lend(half);
        }
    };
    living(&NODES, false, halve, |subject, history, nodes| {
        for address in NODES {
            let occupancy = nodes.0.lock()[address].lock().occupancy();
            assert!(occupancy.bytes_taken <= occupancy.bytes_max, "{address}: {occupancy:?}");
        }
        assert!(objects_put(subject, history) > 0);
    });
}

/// Two databases on nodes with room for four segments: one that has none left is told so, and goes
/// on once there is room; the other one writes on.
#[test]
pub(super) fn a_writer_without_room_is_told_that_and_others_go_on() {
    let world = World::new(7);
    let env = world.process("tester").env();
    let nodes = Local::default();
    for (life, address) in (1..).zip(NODES) {
        let regions = Regions::new(NodeIncarnation(life), 4 * (68 << 10));
        nodes.0.lock().insert(address.into(), Arc::new(Mutex::new(regions)));
    }
    let subject = subject(&env, &nodes, 64 << 10);
    let (first, second) = (LogHistory::new(&subject), LogHistory::new(&subject));
    let (one, other) = (first.open(5, 1).expect("room"), second.open(5, 1).expect("room"));
    let mut ends = Vec::new();
    let told = loop {
        match append(&env, &*other, 0, &entry(ends.len() as u64, 900)) {
            Ok(end) => ends.push(end),
            Err(error) => break error,
        }
    };
    assert!(ends.len() > 150, "{} entries fill two segments", ends.len());
    assert!(told.kind() == ErrorKind::DeadlineExceeded && told.to_string().contains("no room"), "{told}");
    let refused = append(&env, &*other, 0, &entry(1000, 900)).expect_err("still full");
    assert!(refused.kind() == ErrorKind::Retry && refused.to_string().contains("no room"), "{refused}");
    for number in 0..20 {
        append(&env, &*one, 0, &entry(number, 900)).expect("its segment has room");
    }
    let third = LogHistory::new(&subject).open(5, 1).expect_err("nobody has room");
    assert!(third.kind() == ErrorKind::Retry && third.to_string().contains("no room"), "{third}");
    other.trim(0, ends[ends.len() - 1]).expect("trimming");
    run_for(&env, Duration::from_secs(10));
    append(&env, &*other, 0, &entry(1001, 900)).expect("there is room again");
}
