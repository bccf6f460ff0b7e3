//! A writer beside nodes that answer: how many batches go before one is answered, by how far the
//! nodes are, that no answer waits for time to pass, which nodes get regions, and whose word is
//! believed.

use std::collections::VecDeque;

use crate::region::Regions;

use super::*;

/// How near a node is, unless a test says otherwise.
const NEAR: Duration = Duration::from_micros(30);

/// Changes what the node of that name answers to what it was asked.
type Lie = Box<dyn Fn(&str, &Body, Answer) -> Answer>;

/// A writer of three regions, beside nodes that answer each call so much later.
struct Group {
    writer: Writer,
    nodes: Vec<(Arc<str>, Regions, Duration)>,
    now: Instant,
    on_their_way: VecDeque<(Instant, CallId, Answer)>,
    lie: Lie,
}

impl Group {
    fn new(delays: &[Duration]) -> Group {
        Group::after(delays, Vec::new())
    }

    /// Where earlier segments found nodes to be so far.
    fn after(delays: &[Duration], distances: Vec<(Arc<str>, Duration)>) -> Group {
        let domains: Vec<String> = (0..delays.len()).map(|number| format!("domain-{number}")).collect();
        let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
        Group::of(0, &domains, delays, distances)
    }

    /// Nodes in these domains, and the number of the segment.
    fn within(domains: &[&str], segment: u32) -> Group {
        Group::of(segment, domains, &vec![NEAR; domains.len()], Vec::new())
    }

    fn of(
        segment: u32,
        domains: &[&str],
        delays: &[Duration],
        distances: Vec<(Arc<str>, Duration)>,
    ) -> Group {
        let identity = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment };
        let shape = Shape { copies: 3, quorum: 2 };
        let job = Job {
            shape,
            database: 9,
            segment: identity,
            epoch: Epoch(1),
            bytes_max: 1 << 20,
            first_region: 1,
            distances,
        };
        let nodes: Vec<(Arc<str>, Regions, Duration)> = (1..)
            .zip(delays)
            .map(|(number, delay)| {
                (Arc::from(format!("node-{number}")), Regions::new(NodeIncarnation(number), 64 << 20), *delay)
            })
            .collect();
        let known: Vec<Node> = nodes
            .iter()
            .zip(domains)
            .map(|((name, ..), domain)| Node { address: Arc::clone(name), domain: Arc::from(*domain) })
            .collect();
        let now = Instant::from_nanos(1);
        let mut writer = Writer::new(job, &known);
        writer.tick(now);
        let mut group =
            Group { writer, nodes, now, on_their_way: VecDeque::new(), lie: Box::new(|_, _, answer| answer) };
        while group.step() {}
        assert_eq!(group.writer.configured().len(), 3);
        group
    }

    /// Takes the next calls to send, and hears the next answer; `false`: there is none.
    fn step(&mut self) -> bool {
        for call in self.writer.take_calls() {
            let (_, regions, delay) = self.nodes.iter_mut().find(|(name, ..)| *name == call.node).unwrap();
            let body = call.request.body.clone();
            let answer = (self.lie)(&call.node, &body, regions.handle(call.request));
            self.on_their_way.push_back((self.now + *delay, call.id, answer));
        }
        let Some(next) = (0..self.on_their_way.len()).min_by_key(|at| self.on_their_way[*at].0) else {
            return false;
        };
        let (at, id, answer) = self.on_their_way.remove(next).unwrap();
        self.now = self.now.max(at);
        self.writer.answered(id, Ok(answer), self.now);
        // Each proposal is published at once.
        if self.writer.take_proposal().is_some() {
            self.writer.published(Published::Known, self.now);
        }
        true
    }

    /// So many records, at once: how many batches they go in, and that all of them are
    /// acknowledged.
    fn batches_of(&mut self, records: usize) -> usize {
        let before = self.writer.batches.count();
        for _ in 0..records {
            self.writer.append(b"payload", &[], self.now);
        }
        while self.step() {}
        assert_eq!(self.writer.acknowledged(), self.writer.end());
        self.writer.batches.count() - before
    }

    /// Which nodes hold regions that count, by their numbers.
    fn holders(&self) -> Vec<String> {
        let mut nodes: Vec<String> = self
            .writer
            .configured()
            .iter()
            .map(|member| member.node.trim_start_matches("node-").to_owned())
            .collect();
        nodes.sort();
        nodes
    }
}

#[test]
fn records_gather_where_nodes_are_near_and_overlap_where_they_are_far() {
    let micros = Duration::from_micros;
    let mut near = Group::new(&[NEAR; 3]);
    assert_eq!(near.batches_of(16), 2, "one, and the rest when that was answered");
    assert_eq!(near.writer.distance(), Some(NEAR));
    let mut far = Group::new(&[micros(500); 3]);
    assert_eq!(far.batches_of(16), 5);
    assert_eq!(far.batches_of(4), 4);
    // What earlier segments found counts for the same nodes, which answer late under load, and for
    // no others.
    let mut late = Group::after(&[micros(500); 3], near.writer.distances());
    assert_eq!(late.batches_of(16), 2);
    assert_eq!(late.writer.distances().len(), 3);
    let others = near
        .writer
        .distances()
        .into_iter()
        .map(|(node, distance)| (Arc::from(format!("{node} of another rack")), distance));
    assert_eq!(Group::after(&[micros(500); 3], others.collect()).batches_of(16), 5);
    // q of the nodes count: one that is near acknowledges nothing alone.
    assert_eq!(Group::new(&[micros(5), micros(500), micros(500)]).batches_of(16), 5);
    assert_eq!(Group::new(&[micros(5), micros(60), micros(500)]).batches_of(16), 3);
}

/// A node of shared memory, asked whether a region is there, looks at nothing: it may say what it
/// held within a batch, when somebody read of it.
#[test]
fn less_than_a_region_has_said_already_is_no_news() {
    let mut group = Group::new(&[Duration::from_micros(30); 4]);
    group.writer.append(b"one", &[], group.now);
    let end = group.writer.append(b"two", &[], group.now);
    let within = Extent { length: end, digest: group.writer.digest(), committed: 0 };
    group.batches_of(1);
    assert!(group.writer.batches.at(end).is_none(), "the second and the third record are one batch");
    group.now = group.now + IDLE;
    group.writer.tick(group.now);
    let probes = group.writer.take_calls();
    assert_eq!(probes.len(), 3);
    group.writer.answered(probes[0].id, Ok(Answer::Held(within)), group.now);
    assert_eq!(group.writer.standing(group.now).healthy, 3);
    assert!(group.writer.take_calls().is_empty(), "no other region is asked for");
    // For bytes never held it is not to be believed.
    let beyond = Extent { length: group.writer.end() + 1, ..within };
    group.writer.answered(probes[1].id, Ok(Answer::Held(beyond)), group.now);
    assert_eq!(group.writer.standing(group.now).healthy, 2);
}

/// Of what it was sent: a node answers an append when it holds all of it.
#[test]
fn a_region_that_says_it_holds_less_than_it_was_sent_is_replaced() {
    for is_within_a_batch in [true, false] {
        let mut group = Group::new(&[NEAR; 4]);
        let (one, of_one) = (group.writer.append(b"one", &[], group.now), group.writer.digest());
        let (two, of_two) = (group.writer.append(b"two", &[], group.now), group.writer.digest());
        group.batches_of(1);
        assert!(
            group.writer.batches.at(one).is_some() && group.writer.batches.at(two).is_none(),
            "the second and the third are one batch"
        );
        let (length, digest) = if is_within_a_batch { (two, of_two) } else { (one, of_one) };
        group.lie = Box::new(move |node, body, answer| match (body, answer) {
            (Body::Append { records, .. }, Answer::Held(extent))
                if node == "node-1" && !records.is_empty() =>
            {
                Answer::Held(Extent { length, digest, ..extent })
            }
            (_, answer) => answer,
        });
        group.batches_of(1);
        assert_eq!(group.holders(), ["2", "3", "4"], "within a batch: {is_within_a_batch}");
    }
}

#[test]
fn a_region_that_is_wanted_back_is_replaced_by_answers_alone() {
    let mut group = Group::new(&[NEAR; 4]);
    group.batches_of(16);
    let leaving = group.writer.configured()[0].region;
    group.writer.give_back(leaving, group.now);
    while group.step() {}
    let members = group.writer.configured();
    assert!(members.len() == 3 && members.iter().all(|member| member.region != leaving), "{members:?}");
    group.batches_of(16);
}

#[test]
fn regions_are_spread_over_domains_and_share_one_where_there_are_too_few() {
    let cases: [(&[&str], u32, [&str; 3]); 5] = [
        (&["a", "a", "b", "c"], 0, ["1", "3", "4"]),
        (&["a", "a", "b", "c"], 1, ["2", "3", "4"]),
        (&["a", "a", "a", "b", "b", "c"], 0, ["1", "4", "6"]),
        (&["a", "a", "a", "b"], 0, ["1", "2", "4"]),
        (&["a", "a", "a", "a"], 0, ["1", "2", "3"]),
    ];
    for (domains, segment, expected) in cases {
        let mut group = Group::within(domains, segment);
        assert_eq!(group.holders(), expected, "{domains:?}, segment {segment}");
        group.batches_of(16);
    }
    // A region that leaves is replaced where no other one is: its own domain is free again.
    let mut group = Group::within(&["a", "b", "c", "a", "b", "c"], 0);
    let leaving = group.writer.configured()[2].region;
    group.writer.give_back(leaving, group.now);
    while group.step() {}
    assert_eq!(group.holders(), ["1", "2", "6"]);
}

/// A node that is near says more than is so of what it holds: it counts for nothing, the first
/// record is acknowledged by the two others, and the region moves.
fn is_not_believed(lie: impl Fn(Extent) -> Extent + 'static) {
    let far = Duration::from_micros(900);
    let mut group = Group::new(&[NEAR, far / 2, far, 2 * far]);
    assert_eq!(group.holders(), ["1", "2", "3"]);
    group.lie = Box::new(move |node, body, answer| match (body, answer) {
        (Body::Append { .. }, Answer::Held(extent)) if node == "node-1" => Answer::Held(lie(extent)),
        (_, answer) => answer,
    });
    let before = group.writer.acknowledged();
    let (begun, end) = (group.now, group.writer.append(b"payload", &[], group.now));
    while group.step() {
        let is_acknowledged = group.writer.acknowledged() > before;
        assert!(!is_acknowledged || group.now >= begun + far, "by one that holds it and one that lies");
    }
    assert_eq!(group.writer.acknowledged(), end);
    assert_eq!(group.holders(), ["2", "3", "4"]);
    group.batches_of(16);
}

#[test]
fn the_word_of_a_region_that_holds_what_was_never_sent_is_not_believed() {
    is_not_believed(|extent| Extent { length: extent.length + 1, ..extent });
    is_not_believed(|extent| Extent { length: u32::MAX, ..extent });
    is_not_believed(|extent| Extent { digest: Digest(extent.digest.0 ^ 1), ..extent });
    is_not_believed(|extent| Extent { length: 0, ..extent });
}

#[test]
fn a_region_that_is_full_when_it_is_made_gets_nothing() {
    let mut group = Group::new(&[NEAR; 5]);
    group.lie = Box::new(|node, body, answer| match (body, answer) {
        (Body::Create { .. }, Answer::Held(extent)) if node == "node-4" => {
            Answer::Held(Extent { length: 77, ..extent })
        }
        (Body::Append { .. }, answer) if node == "node-4" => panic!("it is written to: {answer:?}"),
        (_, answer) => answer,
    });
    let leaving = group.writer.configured()[0].region;
    group.writer.give_back(leaving, group.now);
    while group.step() {}
    assert_eq!(group.holders(), ["2", "3", "5"]);
    group.batches_of(16);
}
