use tombolo_env::simulated::World;

use super::*;

/// The latencies of so many requests, in order of length.
fn draws(latency: Latency, count: usize) -> Vec<Duration> {
    let world = World::new(5);
    let env = world.process("p").env();
    let mut drawn: Vec<_> = (0..count).map(|_| latency.draw(&env)).collect();
    drawn.sort_unstable();
    drawn
}

fn is_about(found: Duration, wanted: Duration) -> bool {
    found.abs_diff(wanted) <= wanted / 20
}

#[test]
fn the_percentiles_are_those_asked_for() {
    let body = Latency { slow_permille: 0, ..Latency::S3 };
    for (latency, p50, p99) in
        [(body, body.p50, body.p99), (Latency::CLUSTER, Latency::CLUSTER.p50, Latency::CLUSTER.p99)]
    {
        let drawn = draws(latency, 20_000);
        assert!(
            is_about(drawn[10_000], p50) && is_about(drawn[19_800], p99),
            "{:?} {:?}",
            drawn[10_000],
            drawn[19_800]
        );
    }
    let drawn = draws(Latency::S3, 20_000);
    let slow = drawn.iter().filter(|latency| **latency == Latency::S3.slow).count();
    assert!((140..=260).contains(&slow), "1 % takes half a second: {slow} of 20,000");
    assert!(
        draws(Latency::fixed(Duration::from_millis(3)), 100)
            .iter()
            .all(|latency| *latency == Duration::from_millis(3))
    );
    assert_eq!(draws(Latency::S3, 100), draws(Latency::S3, 100), "a seed draws the same again");
}

#[test]
fn one_node_is_slow_and_a_second_request_goes_to_another() {
    let nodes = Arc::<Nodes>::default();
    let name = ObjectName::new("table/1").expect("a name");
    let chunks = || (0..5000).map(|chunk| chunk * CHUNK_BYTES);
    let slow: Vec<u64> =
        chunks().filter(|start| nodes.visit(50, &name, *start).is_some_and(|visit| visit.is_slow)).collect();
    assert!((60..=140).contains(&slow.len()), "one of fifty: {}", slow.len());
    for start in slow {
        let first = nodes.visit(50, &name, start).expect("a visit");
        let second = nodes.visit(50, &name, start).expect("a visit");
        assert!(first.is_slow && !second.is_slow);
        drop((first, second));
        assert!(
            nodes.visit(50, &name, start).is_some_and(|visit| visit.is_slow),
            "the same node when nothing is on its way"
        );
    }
    assert!(nodes.being_read.lock().is_empty(), "what ended is forgotten");
    assert!(nodes.visit(0, &name, 0).is_none());
}

#[test]
fn latencies_are_named_or_put_together_and_mistakes_are_told() {
    assert_eq!(Latency::parse("s3").expect("a name"), Latency::S3);
    let text = "p50_us:740,p99_us:2000,nodes:50,slow_node_us:20000,bytes_per_second:400000000";
    assert_eq!(Latency::parse(text).expect("parts"), Latency::CLUSTER);
    for text in [
        "",
        "s4",
        "p50_us",
        "p50_us:x",
        "p50_us:1,p50_us:1",
        "p50_us:60000001",
        "slow_permille:1001",
        "p50_us:9,p99_us:8",
        "p49_us:1",
    ] {
        let error = Latency::parse(text).expect_err(text);
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("s3 or cluster"),
            "{text}: {error}"
        );
    }
}
