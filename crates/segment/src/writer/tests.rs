//! A writer beside nodes that answer: how many batches go before one is answered, by how far the nodes are, and that no answer waits for time to pass.

use std::collections::VecDeque;

use crate::region::Regions;

use super::*;

/// A writer of three regions, beside nodes that answer each call so much later.
struct Group {
    writer: Writer,
    nodes: Vec<(Arc<str>, Regions, Duration)>,
    now: Instant,
    on_their_way: VecDeque<(Instant, CallId, Answer)>,
}

impl Group {
    fn new(delays: &[Duration]) -> Group {
        Group::after(delays, Vec::new())
    }

    /// Where earlier segments found nodes to be so far.
    fn after(delays: &[Duration], distances: Vec<(Arc<str>, Duration)>) -> Group {
        let identity = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 };
        let shape = Shape { copies: 3, quorum: 2 };
        let job = Job { shape, database: 9, segment: identity, epoch: Epoch(1), bytes_max: 1 << 20, first_region: 1, distances };
        let nodes: Vec<(Arc<str>, Regions, Duration)> = (1..)
            .zip(delays)
            .map(|(number, delay)| (Arc::from(format!("node-{number}")), Regions::new(NodeIncarnation(number), 64 << 20), *delay))
            .collect();
        let known: Vec<Node> = nodes.iter().map(|(name, ..)| Node { address: Arc::clone(name), domain: Arc::clone(name) }).collect();
        let now = Instant::from_nanos(1);
        let mut writer = Writer::new(job, &known);
        writer.tick(now);
        let mut group = Group { writer, nodes, now, on_their_way: VecDeque::new() };
        while group.step() {}
        assert_eq!(group.writer.configured().len(), 3);
        group
    }

    /// Takes what is to be sent, and hears the next answer; `false`: there is none.
    fn step(&mut self) -> bool {
        for call in self.writer.take_calls() {
            let (_, regions, delay) = self.nodes.iter_mut().find(|(name, ..)| *name == call.node).unwrap();
            self.on_their_way.push_back((self.now + *delay, call.id, regions.handle(call.request)));
        }
        let Some(next) = (0..self.on_their_way.len()).min_by_key(|at| self.on_their_way[*at].0) else { return false };
        let (at, id, answer) = self.on_their_way.remove(next).unwrap();
        self.now = self.now.max(at);
        self.writer.answered(id, Ok(answer), self.now);
        // What is proposed is published at once.
        if self.writer.take_proposal().is_some() {
            self.writer.published(Published::Known, self.now);
        }
        true
    }

    /// So many records, at once: how many batches they go in, and that all of them are acknowledged.
    fn batches_of(&mut self, records: usize) -> usize {
        let before = self.writer.batches.count();
        for _ in 0..records {
            self.writer.append(b"payload", &[], self.now);
        }
        while self.step() {}
        assert_eq!(self.writer.acknowledged(), self.writer.end());
        self.writer.batches.count() - before
    }
}

#[test]
fn records_gather_where_nodes_are_near_and_overlap_where_they_are_far() {
    let micros = Duration::from_micros;
    let mut near = Group::new(&[micros(30); 3]);
    assert_eq!(near.batches_of(16), 2, "one, and the rest when that was answered");
    assert_eq!(near.writer.distance(), Some(micros(30)));
    let mut far = Group::new(&[micros(500); 3]);
    assert_eq!(far.batches_of(16), 5);
    assert_eq!(far.batches_of(4), 4);
    // What earlier segments found counts for the same nodes, which answer late under load, and for no others.
    let mut late = Group::after(&[micros(500); 3], near.writer.distances());
    assert_eq!(late.batches_of(16), 2);
    assert_eq!(late.writer.distances().len(), 3);
    let others = near.writer.distances().into_iter().map(|(node, distance)| (Arc::from(format!("{node} of another rack")), distance));
    assert_eq!(Group::after(&[micros(500); 3], others.collect()).batches_of(16), 5);
    // q of the nodes count: one that is near acknowledges nothing alone.
    assert_eq!(Group::new(&[micros(5), micros(500), micros(500)]).batches_of(16), 5);
    assert_eq!(Group::new(&[micros(5), micros(60), micros(500)]).batches_of(16), 3);
}

/// A node of shared memory, asked whether a region is there, looks at nothing: it may say what it held within a batch, when somebody read of it.
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
    // Of what was never held it is not to be believed.
    let beyond = Extent { length: group.writer.end() + 1, ..within };
    group.writer.answered(probes[1].id, Ok(Answer::Held(beyond)), group.now);
    assert_eq!(group.writer.standing(group.now).healthy, 2);
}

#[test]
fn a_region_that_is_wanted_back_is_replaced_by_answers_alone() {
    let mut group = Group::new(&[Duration::from_micros(30); 4]);
    group.batches_of(16);
    let leaving = group.writer.configured()[0].region;
    group.writer.give_back(leaving, group.now);
    while group.step() {}
    let members = group.writer.configured();
    assert!(members.len() == 3 && members.iter().all(|member| member.region != leaving), "{members:?}");
    group.batches_of(16);
}
