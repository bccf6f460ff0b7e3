//! What a store was asked for since it was opened: requests and bytes, by purpose and kind.
//!
//! A store behind a network counts its own requests as they go out, so that parts of an upload,
//! pages of a list and attempts that were made again are told apart; the
//! [`layer`](crate::layer::meter) counts the calls of every other. Counting is a few relaxed
//! additions.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Purpose;
use crate::request::RequestKind;

/// What one [`Meter`] counted of one purpose and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Why the requests were made.
    pub purpose: Purpose,
    /// What was asked.
    pub kind: RequestKind,
    /// Requests that were made, failed ones included.
    pub requests: u64,
    /// Of those, the ones that were refused, or that nothing came back of.
    pub failed: u64,
    /// Bytes sent with them: contents, not headers.
    pub bytes_sent: u64,
    /// Bytes of contents that came back. Of a list over a network what the answer announced, which
    /// may be nothing.
    pub bytes_received: u64,
}

impl Counted {
    /// Counts another store's requests of the same purpose and kind as well.
    pub fn add(&mut self, more: &Counted) {
        self.requests += more.requests;
        self.failed += more.failed;
        self.bytes_sent += more.bytes_sent;
        self.bytes_received += more.bytes_received;
    }
}

#[derive(Debug, Default)]
struct Cell {
    requests: AtomicU64,
    failed: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

const KINDS: usize = RequestKind::OF_OBJECTS.len();

/// Counts requests. Shared by a store and its readers; safe from any thread.
#[derive(Debug)]
pub struct Meter {
    /// By purpose, then kind, in the order of their declaration.
    cells: [[Cell; KINDS]; Purpose::ALL.len()],
    goes_over_network: bool,
}

impl Meter {
    /// Counts calls of a store of this machine.
    pub fn of_calls() -> Meter {
        Meter { cells: Default::default(), goes_over_network: false }
    }

    /// Counts requests that go over a network, as who serves them counts them too.
    pub fn of_network() -> Meter {
        Meter { goes_over_network: true, ..Meter::of_calls() }
    }

    /// Whether what it counts goes over a network, and may be paid for.
    pub fn goes_over_network(&self) -> bool {
        self.goes_over_network
    }

    fn cell(&self, purpose: Purpose, kind: RequestKind) -> Option<&Cell> {
        self.cells.get(purpose as usize)?.get(kind as usize)
    }

    /// Counts a request that goes out with so many bytes.
    pub fn sent(&self, purpose: Purpose, kind: RequestKind, bytes: u64) {
        if let Some(cell) = self.cell(purpose, kind) {
            cell.requests.fetch_add(1, Ordering::Relaxed);
            cell.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts what came back of one.
    pub fn received(&self, purpose: Purpose, kind: RequestKind, bytes: u64) {
        if let Some(cell) = self.cell(purpose, kind) {
            cell.bytes_received.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts that one failed.
    pub fn failed(&self, purpose: Purpose, kind: RequestKind) {
        if let Some(cell) = self.cell(purpose, kind) {
            cell.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All that was asked for at least once, by purpose, then kind.
    pub fn counted(&self) -> Vec<Counted> {
        let mut all = Vec::new();
        for (purpose, cells) in Purpose::ALL.into_iter().zip(&self.cells) {
            for (kind, cell) in RequestKind::OF_OBJECTS.into_iter().zip(cells) {
                let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                if of(&cell.requests) > 0 {
                    all.push(Counted {
                        purpose,
                        kind,
                        requests: of(&cell.requests),
                        failed: of(&cell.failed),
                        bytes_sent: of(&cell.bytes_sent),
                        bytes_received: of(&cell.bytes_received),
                    });
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_and_kind_has_a_cell_of_its_own() {
        let meter = Meter::of_calls();
        for (number, purpose) in (1..).zip(Purpose::ALL) {
            for kind in RequestKind::OF_OBJECTS {
                meter.sent(purpose, kind, number);
                meter.received(purpose, kind, kind as u64);
            }
        }
        let last = Purpose::ALL[Purpose::ALL.len() - 1];
        meter.failed(last, RequestKind::Sweep);
        let counted = meter.counted();
        assert_eq!(counted.len(), Purpose::ALL.len() * KINDS);
        for (index, counted) in counted.into_iter().enumerate() {
            assert_eq!((counted.purpose as usize, counted.kind as usize), (index / KINDS, index % KINDS));
            assert_eq!((counted.requests, counted.bytes_sent), (1, counted.purpose as u64 + 1));
            assert_eq!(counted.bytes_received, counted.kind as u64);
            assert_eq!(counted.failed, u64::from(index + 1 == Purpose::ALL.len() * KINDS));
        }
        // A log's requests are no requests for objects.
        meter.sent(Purpose::Log, RequestKind::LogAppend, 1);
        assert_eq!(
            meter.counted().iter().map(|counted| counted.requests).sum::<u64>(),
            (Purpose::ALL.len() * KINDS) as u64
        );
    }
}
