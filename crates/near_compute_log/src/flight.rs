//! Calls on their way to nodes, and their answers on the way back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tombolo_env::{Completion, Env, within};
use tombolo_segment::call::{Call, CallId, Lost, Outcome};
use tombolo_segment::message::{Answer, Request};
use tombolo_segment::peer::Peer;
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

/// Nodes that a flight knows by the very names that its calls have.
const KNOWN_MAX: usize = 16;

/// Calls without an answer yet.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    waiting: Vec<Waiting<T>>,
    /// Answers that came with their calls.
    at_once: Vec<Landed<T>>,
    known: Vec<(Arc<str>, Arc<dyn Peer>)>,
    /// Whoever waits for answers.
    waker: Option<Waker>,
    /// Where it is noted why calls failed.
    troubles: Option<Arc<Troubles>>,
}

impl<T> Default for Flight<T> {
    fn default() -> Flight<T> {
        Flight { waiting: Vec::new(), at_once: Vec::new(), known: Vec::new(), waker: None, troubles: None }
    }
}

impl<T: Copy> Flight<T> {
    /// Sends a call on its way.
    pub(crate) fn send(&mut self, neighbours: &Neighbours, whose: T, call: Call) {
        let Call { id, node, request } = call;
        let troubles = self.troubles.get_or_insert_with(|| Arc::clone(neighbours.troubles()));
        let at_once = match known(&mut self.known, neighbours, &node) {
            Ok(peer) => match peer.answer_at_once(&request) {
                None => {
                    let answer = peer.call(request);
                    // What nobody waits for is let go.
                    if id != CallId::nobodys() {
                        self.waiting.push(Waiting { whose, id, node, answer });
                    }
                    return;
                }
                Some(answer) => answer,
            },
            Err(error) => Err(error),
        };
        if id != CallId::nobodys() {
            troubles.hear(&node, Some(&at_once));
            self.at_once.push((whose, id, at_once.map_err(|_| Lost)));
        }
    }

    /// Gives answers that came with their calls, for an empty buffer.
    pub(crate) fn swap_at_once(&mut self, buffer: &mut Vec<Landed<T>>) {
        std::mem::swap(&mut self.at_once, buffer);
    }

    /// Answers that are there. Whoever waits is woken by those that are not.
    pub(crate) fn landed(&mut self) -> Vec<Landed<T>> {
        let waker = self.waker.clone().unwrap_or_else(|| Waker::noop().clone());
        self.poll(&mut Context::from_waker(&waker))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Vec<Landed<T>> {
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

    /// The next answers; none when `patience` is over before.
    pub(crate) async fn next(&mut self, env: &Env, patience: std::time::Duration) -> Vec<Landed<T>> {
        within(env, patience, std::future::poll_fn(|context| self.poll_landed(context))).await.unwrap_or_default()
    }
}

/// The peer of a node.
fn known<'a>(known: &'a mut Vec<(Arc<str>, Arc<dyn Peer>)>, neighbours: &Neighbours, node: &Arc<str>) -> Result<&'a dyn Peer> {
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
    Ok(known[at].1.as_ref())
}

/// One call, and its answer; `Lost` when none came within `patience`.
pub(crate) async fn ask(env: &Env, neighbours: &Neighbours, node: &Arc<str>, request: Request, patience: std::time::Duration) -> Outcome {
    let Ok(peer) = neighbours.peer(node) else { return Err(Lost) };
    match within(env, patience, peer.call(request)).await.flatten() {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) | None => Err(Lost),
    }
}
