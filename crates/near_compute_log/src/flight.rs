//! Calls on their way to nodes, and their answers on the way back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tombolo_env::{Completion, Env, within};
use tombolo_segment::call::{Call, CallId, Lost, Outcome};
use tombolo_segment::message::{Answer, RegionId, Request};
use tombolo_segment::peer::{AtOnce, Peer};
use tombolo_storage::Result;

use crate::peers::{Neighbours, Troubles};

/// An answer that came, or will not: of whose call, which call, what.
pub(crate) type Landed<T> = (T, CallId, Outcome);

#[derive(Debug)]
struct Waiting<T> {
    whose: T,
    id: CallId,
    node: Arc<str>,
    answer: Completion<Result<Answer>>,
}

/// A call that was stored, whose answer is to be asked for once the others are stored as well.
#[derive(Debug)]
struct Stored<T> {
    whose: T,
    id: CallId,
    node: Arc<str>,
    region: RegionId,
    peer: Arc<dyn Peer>,
}

/// Nodes that a flight knows by the very names that its calls have.
const KNOWN_MAX: usize = 16;

/// Calls without an answer yet.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    waiting: Vec<Waiting<T>>,
    /// Each of another region.
    stored: Vec<Stored<T>>,
    /// Answers that came with their calls.
    at_once: Vec<Landed<T>>,
    known: Vec<(Arc<str>, Arc<dyn Peer>)>,
    /// The task that waits for answers.
    waker: Option<Waker>,
    /// Where it is noted why calls failed.
    troubles: Option<Arc<Troubles>>,
}

impl<T> Default for Flight<T> {
    fn default() -> Flight<T> {
        Flight {
            waiting: Vec::new(),
            stored: Vec::new(),
            at_once: Vec::new(),
            known: Vec::new(),
            waker: None,
            troubles: None,
        }
    }
}

impl<T: Copy> Flight<T> {
    /// Sends a call on its way.
    pub(crate) fn send(&mut self, neighbours: &Neighbours, whose: T, call: Call) {
        let Call { id, node, request } = call;
        self.troubles.get_or_insert_with(|| Arc::clone(neighbours.troubles()));
        let region = request.region;
        if self.stored.iter().any(|stored| stored.region == region) {
            self.hear_stored();
        }
        let answer = match known(&mut self.known, neighbours, &node) {
            Ok(peer) => match peer.answer_at_once(&request) {
                AtOnce::Stored => {
                    return self.stored.push(Stored { whose, id, node, region, peer: Arc::clone(peer) });
                }
                AtOnce::Answer(answer) => answer,
                AtOnce::No => {
                    let answer = peer.call(request);
                    // What nobody waits for is let go.
                    if id != CallId::nobodys() {
                        self.waiting.push(Waiting { whose, id, node, answer });
                    }
                    return;
                }
            },
            Err(error) => Err(error),
        };
        self.came_at_once(whose, id, &node, answer);
    }

    fn came_at_once(&mut self, whose: T, id: CallId, node: &Arc<str>, answer: Result<Answer>) {
        if id != CallId::nobodys() {
            if let Some(troubles) = &self.troubles {
                troubles.hear(node, Some(&answer));
            }
            self.at_once.push((whose, id, answer.map_err(|_| Lost)));
        }
    }

    /// Asks what came of what was stored.
    fn hear_stored(&mut self) {
        let mut all = std::mem::take(&mut self.stored);
        for Stored { whose, id, node, region, peer } in all.drain(..) {
            self.came_at_once(whose, id, &node, peer.answer_stored(region));
        }
        self.stored = all;
    }

    /// Gives answers that came with their calls, for an empty buffer.
    pub(crate) fn swap_at_once(&mut self, buffer: &mut Vec<Landed<T>>) {
        self.hear_stored();
        std::mem::swap(&mut self.at_once, buffer);
    }

    /// Answers that are there. Those that are not yet wake the task that waits.
    pub(crate) fn landed(&mut self) -> Vec<Landed<T>> {
        let waker = self.waker.clone().unwrap_or_else(|| Waker::noop().clone());
        self.poll(&mut Context::from_waker(&waker))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Vec<Landed<T>> {
        self.hear_stored();
        let mut landed = std::mem::take(&mut self.at_once);
        let mut at = 0;
        while at < self.waiting.len() {
            match Pin::new(&mut self.waiting[at].answer).poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    // In the order of the calls: answers of one region tell more and more.
                    let Waiting { whose, id, node, .. } = self.waiting.remove(at);
                    if let Some(troubles) = &self.troubles {
                        troubles.hear(&node, answer.as_ref());
                    }
                    let outcome = match answer {
                        Some(Ok(answer)) => Ok(answer),
                        Some(Err(_)) | None => Err(Lost),
                    };
                    landed.push((whose, id, outcome));
                }
            }
        }
        landed
    }

    /// As [`Flight::landed`], for the one who waits: `Pending` when nothing is there.
    pub(crate) fn poll_landed(&mut self, context: &mut Context<'_>) -> Poll<Vec<Landed<T>>> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        let landed = self.poll(context);
        if landed.is_empty() { Poll::Pending } else { Poll::Ready(landed) }
    }

    /// The next answers; none when `time_max` is over before.
    pub(crate) async fn next(&mut self, env: &Env, time_max: std::time::Duration) -> Vec<Landed<T>> {
        within(env, time_max, std::future::poll_fn(|context| self.poll_landed(context)))
            .await
            .unwrap_or_default()
    }
}

/// The peer of a node.
fn known<'a>(
    known: &'a mut Vec<(Arc<str>, Arc<dyn Peer>)>,
    neighbours: &Neighbours,
    node: &Arc<str>,
) -> Result<&'a Arc<dyn Peer>> {
    let at = match known.iter().position(|(name, _)| Arc::ptr_eq(name, node)) {
        Some(at) => at,
        None => {
            let peer = neighbours.peer(node)?;
            if known.len() == KNOWN_MAX {
                known.clear();
            }
            known.push((Arc::clone(node), peer));
            known.len() - 1
        }
    };
    Ok(&known[at].1)
}

/// One call, and its answer; `Lost` when none came within `time_max`.
pub(crate) async fn ask(
    env: &Env,
    neighbours: &Neighbours,
    node: &Arc<str>,
    request: Request,
    time_max: std::time::Duration,
) -> Outcome {
    let Ok(peer) = neighbours.peer(node) else { return Err(Lost) };
    match within(env, time_max, peer.call(request)).await.flatten() {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) | None => Err(Lost),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;
    use tombolo_env::simulated::World;
    use tombolo_env::{Env, completion};
    use tombolo_format::segment_record::Digest;
    use tombolo_segment::message::{Body, Extent, NodeIncarnation, NodeStatus};
    use tombolo_storage::Epoch;

    use super::*;
    use crate::peers::Connect;

    /// Nodes that say what was asked of them, in order.
    #[derive(Clone, Debug, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    #[derive(Debug)]
    struct Noting {
        address: String,
        notes: Notes,
    }

    impl Connect for Notes {
        fn connect(&self, _env: &Env, address: &str) -> Result<Arc<dyn Peer>> {
            Ok(Arc::new(Noting { address: address.to_owned(), notes: self.clone() }))
        }
    }

    impl Noting {
        fn note(&self, what: &str, region: RegionId) {
            self.notes.0.lock().push(format!("{what} {}.{}", self.address, region.0));
        }
    }

    impl Peer for Noting {
        fn answer_at_once(&self, request: &Request) -> AtOnce {
            if !matches!(request.body, Body::Append { .. }) {
                return AtOnce::No;
            }
            self.note("store", request.region);
            AtOnce::Stored
        }

        fn answer_stored(&self, region: RegionId) -> Result<Answer> {
            self.note("answer", region);
            Ok(Answer::Held(Extent { length: 0, digest: Digest(0), committed: 0 }))
        }

        fn call(&self, request: Request) -> Completion<Result<Answer>> {
            self.note("call", request.region);
            completion().1
        }

        fn status(&self) -> Completion<Result<NodeStatus>> {
            completion().1
        }

        fn is_wanted_back(&self, _region: RegionId) -> bool {
            false
        }

        fn domain(&self) -> Option<Arc<str>> {
            None
        }

        fn address(&self) -> &str {
            &self.address
        }
    }

    /// All are stored to before the first is asked, and a region is asked before more is stored to
    /// it; none is forgotten.
    #[test]
    fn stores_go_before_answers_and_one_region_after_the_other() {
        let world = World::new(1);
        let notes = Notes::default();
        let neighbours = Neighbours::new(&world.process("writer").env(), Arc::new(notes.clone()), Vec::new());
        let mut flight = Flight::default();
        let mut send = |number: u32, node: &str, region: u128, body: Body| {
            let request =
                Request { incarnation: NodeIncarnation(1), region: RegionId(region), epoch: Epoch(1), body };
            let call = Call { id: CallId::new(0, number), node: node.into(), request };
            flight.send(&neighbours, number, call);
        };
        let append = || Body::Append { offset: 0, predecessor: Digest(0), records: Bytes::new() };
        for (number, (node, region)) in (1..).zip([("a", 7), ("b", 8), ("c", 9), ("a", 7), ("b", 8)]) {
            send(number, node, region, append());
        }
        send(6, "b", 8, Body::Seal);
        send(7, "c", 9, append());
        let mut answers = Vec::new();
        flight.swap_at_once(&mut answers);
        let expected = "store a.7, store b.8, store c.9, answer a.7, answer b.8, answer c.9, store a.7, \
            store b.8, answer a.7, answer b.8, call b.8, \
            store c.9, answer c.9";
        assert_eq!(notes.0.lock().join(", "), expected);
        assert_eq!(answers.into_iter().map(|(whose, ..)| whose).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7]);
    }
}
