//! Nodes that run, over a simulated network: what they say that they fail together with, and what
//! they are told to lend.

use tombolo_env::simulated::Process;
use tombolo_segment::node::{CONNECTIONS_MAX, Node, NodeOptions};
use tombolo_segment::tcp::TcpPeer;
use tombolo_storage::{Registry, Uri};

use super::*;
use crate::register;

/// A node on a host of its own.
fn start(world: &World, host: &str, domain: &str) -> (Process, Node) {
    let options = NodeOptions {
        listen: format!("{host}:7420"),
        bytes_max: 256 << 20,
        domain: domain.into(),
        credentials: None,
        connections_max: CONNECTIONS_MAX,
        disk: None,
        share: None,
        rdma: None,
    };
    let process = world.add_host(host).process("node");
    let env = process.env();
    let node = process.run(async move { Node::start(&env, options).await });
    (process, node.expect("alive").expect("it starts"))
}

/// A log on nodes at these addresses.
fn by_address(env: &Env, addresses: &[String]) -> LogSubject {
    let mut registry = Registry::with_defaults();
    register(&mut registry, Ok(None));
    let parse = |text: &str| Uri::parse(text).expect("a URI");
    let (objects, log) =
        (Arc::new(MemoryObjectStore::unnamed(env)), parse(&format!("near://{}", addresses.join(","))));
    let store =
        registry.open_log_store(env, &parse("mem://a-database"), Some(&log), &(Arc::clone(&objects) as _));
    LogSubject { env: env.clone(), store: store.expect("a log"), objects }
}

/// Where a log's first segment is, of nodes in these domains; of `-` nothing runs. How long opening
/// it took, too.
fn placed(domains: &[&str]) -> (Vec<String>, Duration) {
    let world = World::new(7);
    let hosts: Vec<String> = (1..=domains.len()).map(|number| format!("h{number}")).collect();
    let _nodes: Vec<(Process, Node)> = hosts
        .iter()
        .zip(domains)
        .filter(|(_, domain)| **domain != "-")
        .map(|(host, domain)| start(&world, host, domain))
        .collect();
    let env = world.add_host("writer").process("writer").env();
    let addresses: Vec<String> = hosts.iter().map(|host| format!("{host}:7420")).collect();
    let subject = by_address(&env, &addresses);
    let history = LogHistory::new(&subject);
    let begun = env.now();
    let log = history.open(5, 1).expect("enough nodes");
    let took = env.now().since(begun);
    append(&env, &*log, 0, &entry(0, 900)).expect("enough nodes");
    // The node that is down is tried first, and replaced.
    run_for(&env, Duration::from_secs(5));
    let first = decode(&history.record(5, 0)).expect("a lane").segments.remove(0);
    let mut hosts: Vec<String> =
        first.regions.into_iter().map(|region| region.address.trim_end_matches(":7420").to_owned()).collect();
    hosts.sort();
    (hosts, took)
}

#[test]
fn regions_are_spread_over_the_domains_that_nodes_say() {
    assert_eq!(placed(&["r1", "r1", "r2", "r3"]).0, ["h1", "h3", "h4"]);
    assert_eq!(placed(&["r1", "r1", "r1", "r2"]).0, ["h1", "h2", "h4"]);
    // Which of several that will do depends on who answers first.
    let mut hosts = placed(&["", "", "", ""]).0;
    hosts.dedup();
    assert_eq!(hosts.len(), 3, "each host by itself: {hosts:?}");
    let hosts = placed(&["", "h1", "", ""]).0;
    assert_eq!(hosts[1..], ["h3", "h4"], "a host has a name as well: {hosts:?}");
    assert_eq!(placed(&["r1", "r1", "r1"]).0, ["h1", "h2", "h3"], "there is no choice");
}

#[test]
fn a_node_that_is_down_holds_the_opening_up_for_a_second_at_most() {
    let (hosts, took) = placed(&["r1", "-", "r1", "r2"]);
    assert_eq!(hosts, ["h1", "h3", "h4"]);
    assert!(took < Duration::from_millis(1500), "{took:?}");
    // Three domains are enough.
    let (hosts, took) = placed(&["r1", "r1", "-", "r2", "r3"]);
    assert_eq!(hosts, ["h1", "h4", "h5"]);
    assert!(took < Duration::from_millis(900), "{took:?}");
}

/// Enough domains are known before all nodes have answered: one that answers late is not taken for
/// a domain of its own, as its host would be.
#[test]
fn a_node_that_answers_late_takes_the_place_of_no_domain_that_is_known() {
    let world = World::new(7);
    let names = ["h1", "h2", "h3", "h4"];
    let nodes: Vec<_> = names
        .iter()
        .zip(["r1", "r1", "r2", "r3"])
        .map(|(host, domain)| start(&world, host, domain))
        .collect();
    let away = world.add_host("writer");
    let env = away.process("writer").env();
    let late = nodes[1].0.host();
    world.partition(&late, &away);
    let subject = by_address(&env, &names.map(|host| format!("{host}:7420")));
    let history = LogHistory::new(&subject);
    let log = history.open(5, 1).expect("enough nodes");
    world.heal(&late, &away);
    append(&env, &*log, 0, &entry(0, 900)).expect("enough nodes");
    run_for(&env, Duration::from_secs(5));
    let first = decode(&history.record(5, 0)).expect("a lane").segments.remove(0);
    let mut on: Vec<String> = first.regions.into_iter().map(|region| region.address.to_string()).collect();
    on.sort();
    assert_eq!(on, ["h1:7420", "h3:7420", "h4:7420"]);
}

/// One of the nodes is told to lend half of what its regions take, then nothing: no write fails,
/// and it gets the memory back, whether another node has room or not.
#[test]
fn a_node_that_is_told_to_lend_less_gets_its_memory_back_under_a_writer() {
    for count in [3, 4] {
        let world = World::new(7);
        let hosts: Vec<String> = (1..=count).map(|number| format!("h{number}")).collect();
        let nodes: Vec<(Process, Node)> = hosts.iter().map(|host| start(&world, host, "")).collect();
        let env = world.add_host("writer").process("writer").env();
        let subject = by_address(&env, &hosts.iter().map(|host| format!("{host}:7420")).collect::<Vec<_>>());
        let history = LogHistory::new(&subject);
        let log = history.open(5, 1).expect("opening");
        let mut written = 0;
        let mut write = |entries| {
            for _ in 0..entries {
                append(&env, &*log, 0, &entry(written, 60_000)).expect("no write fails");
                written += 1;
            }
        };
        // More than two segments.
        write(300);
        let told = &nodes[0].1;
        let taken = || told.status().bytes_taken;
        let before = taken();
        assert!(before > 16 << 20, "{before} bytes are taken");
        let operator = TcpPeer::new(&env, "h1:7420", None);
        let lend = |bytes| env.block_on(operator.lend(bytes)).expect("answered");
        for bytes in [before / 2, 0] {
            assert_eq!(lend(bytes).expect("less").bytes_max, bytes);
            for _ in 0..20 {
                write(2);
                run_for(&env, Duration::from_secs(1));
            }
            assert!(taken() <= bytes, "{count} nodes: {} bytes of {bytes} are taken", taken());
        }
        assert_eq!(
            lend((256 << 20) + 1).expect_err("more than it was started with").kind(),
            ErrorKind::Invalid
        );
        assert_eq!(lend(256 << 20).expect("all again").bytes_max, 256 << 20);
        write(300);
        assert_eq!(entries_after_takeover(&history, 9), written);
    }
}

#[test]
fn a_follower_on_another_host_shows_all_of_a_log_that_was_closed() {
    let world = World::new(7);
    let hosts: Vec<String> = (1..=3).map(|number| format!("h{number}")).collect();
    let _nodes: Vec<(Process, Node)> = hosts.iter().map(|host| start(&world, host, "")).collect();
    let addresses: Vec<String> = hosts.iter().map(|host| format!("{host}:7420")).collect();
    let writer = world.add_host("writer").process("writer");
    let subject = by_address(&writer.env(), &addresses);
    let env = world.add_host("follower").process("follower").env();
    is_shown_whole_once_closed(&writer, &subject, 11, &env, &*by_address(&env, &addresses).store);
}
