//! Who is let in, and when nothing is carried out any more.

use tombolo_env::simulated::{Process, World};
use tombolo_format::log_frame::SegmentIdentity;

use super::*;
use crate::peer::Peer;
use crate::tcp::TcpPeer;

const ADDRESS: &str = "node:7000";

fn options() -> NodeOptions {
    NodeOptions {
        listen: ADDRESS.into(),
        bytes_max: 64 << 20,
        domain: String::new(),
        credentials: None,
        connections_max: CONNECTIONS_MAX,
        disk: None,
        share: None,
        rdma: None,
    }
}

fn start(world: &World, options: NodeOptions) -> (Process, Node) {
    let process = world.add_host("node").process("node");
    let env = process.env();
    let node = process.run(async move { Node::start(&env, options).await });
    (process, node.expect("alive").expect("it starts"))
}

fn create(incarnation: NodeIncarnation) -> Request {
    let segment = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
    Request {
        incarnation,
        region: RegionId(1),
        epoch: Epoch(3),
        body: Body::Create { database: 9, segment, bytes_max: 1 << 20 },
    }
}

#[test]
fn a_node_that_ends_carries_out_nothing() {
    for is_drained in [false, true] {
        let world = World::new(1);
        let (process, node) = start(&world, options());
        let shared = Arc::clone(&node.shared);
        let life = node.status().incarnation;
        process.run(async move {
            if is_drained {
                node.drain(None).await.expect("it has no disk");
            } else {
                node.stop().await.expect("it has no disk");
            }
        });
        let line = Line { client: 1, is_superseded: false.into() };
        let seal = Request { body: Body::Seal, ..create(life) };
        for request in [create(life), seal] {
            assert_eq!(
                shared.handle(&line, request).map(|(answer, _)| answer),
                Err(Farewell::Ending),
                "drained: {is_drained}"
            );
        }
        assert_eq!(shared.status().names, 0);
    }
}

#[test]
fn who_is_not_introduced_takes_no_place_of_a_writer_and_not_for_long() {
    let world = World::new(2);
    let (_process, node) = start(&world, NodeOptions { connections_max: 1, ..options() });
    let writer = world.add_host("writer").process("writer");
    let env = writer.env();
    let strangers = writer.run(async move {
        let mut strangers = Vec::new();
        for _ in 0..STRANGERS_MAX + 3 {
            strangers.push(env.network().connect(ADDRESS).await.expect("it listens"));
        }
        strangers
    });
    world.run_for(Duration::from_millis(100));
    assert_eq!((node.counters().connections, node.counters().connections_refused), (STRANGERS_MAX as u64, 3));
    // The time of their introduction is over.
    world.run_for(Duration::from_secs(6));
    assert_eq!(node.counters().connections, 0);
    drop(strangers);
    let env = writer.env();
    let some = writer.run(async move { env.network().connect(ADDRESS).await.expect("it listens") });
    let (peer, other) = (TcpPeer::new(&writer, ADDRESS, None), TcpPeer::new(&writer, ADDRESS, None));
    assert!(world.run_until(peer.status()).expect("answered").is_ok());
    let refused = world.run_until(other.status()).expect("answered").expect_err("one too many").to_string();
    assert!(refused.contains("as many connections"), "{refused}");
    drop(some);
}
