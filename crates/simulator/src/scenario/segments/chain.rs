//! The chain of records that a segment's configurations are published in: slots, filled by
//! put-if-absent.

use tombolo_format::segment_record::Digest;
use tombolo_segment::call::Member;

/// The newest configuration of a log: whose, where, and what it holds once that is settled.
pub(super) type Newest = (u64, Vec<Member>, Option<(u32, Digest)>);

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Its slot is the epoch that it begins.
    Claim,
    /// Where the log of an epoch is.
    Configuration { log: u64, members: Vec<Member>, settled: Option<(u32, Digest)> },
}

/// The records, by slot.
#[derive(Debug)]
pub(super) struct Chain(Vec<(u64, Record)>);

impl Chain {
    pub(super) fn new() -> Chain {
        Chain(vec![(0, Record::Claim)])
    }

    /// The newest slot.
    pub(super) fn tip(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// Begins an epoch on top of the newest record.
    pub(super) fn claim(&mut self) -> u64 {
        let slot = self.0.len() as u64;
        self.0.push((slot, Record::Claim));
        slot
    }

    /// Puts a record into a slot unless something is there; whether the slot holds it then.
    pub(super) fn put(&mut self, slot: u64, attempt: u64, record: &Record) -> bool {
        if self.0.len() as u64 == slot {
            self.0.push((attempt, record.clone()));
        }
        let held = usize::try_from(slot).ok().and_then(|slot| self.0.get(slot));
        held.is_some_and(|(by, held)| *by == attempt && held == record)
    }

    /// The newest configuration of each log up to a slot, oldest log first.
    pub(super) fn logs(&self, up_to: u64) -> Vec<Newest> {
        let mut logs: Vec<Newest> = Vec::new();
        for (_, record) in self.0.iter().zip(0..=up_to).map(|(record, _)| record) {
            if let Record::Configuration { log, members, settled } = record {
                logs.retain(|known| known.0 != *log);
                logs.push((*log, members.clone(), *settled));
            }
        }
        logs.sort_by_key(|known| known.0);
        logs
    }
}
