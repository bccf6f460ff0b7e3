//! The laws of every log: acknowledged records are found, served or shown ones are never
//! taken back, and named regions hold what they should.

use std::collections::BTreeMap;

use tombolo_format::segment_record::Digest;
use tombolo_segment::call::Member;
use tombolo_segment::message::{Answer, RegionId};
use tombolo_storage::Epoch;

use crate::failure::Violation;

/// One epoch's log, as all who ever dealt with it were told.
#[derive(Debug, Default)]
struct Log {
    /// The digest of all up to a record's end.
    written: BTreeMap<u32, Digest>,
    acknowledged: u32,
    /// What a takeover served, once one did.
    served: Option<u32>,
    /// What a follower showed.
    shown: u32,
}

/// All logs.
#[derive(Debug, Default)]
pub(super) struct Checker {
    logs: BTreeMap<u64, Log>,
    /// What nodes told the machine that fills or copies a log's regions, by process and region.
    told: BTreeMap<(usize, RegionId), u32>,
    /// The epoch that each region was sealed in the name of, as its node said.
    sealed_by: BTreeMap<RegionId, Epoch>,
    pub(super) acknowledgements: u64,
    pub(super) served: u64,
}

impl Checker {
    /// A node has answered a process about a region.
    pub(super) fn answered(
        &mut self,
        process: usize,
        is_takeover: bool,
        region: RegionId,
        epoch: Epoch,
        answer: &Answer,
    ) -> Result<(), Violation> {
        let extent = match answer {
            Answer::Held(extent) => Some(*extent),
            Answer::Sealed(extent) => {
                let before = self.sealed_by.insert(region, epoch).filter(|before| *before > epoch);
                if let Some(before) = before {
                    return Err(Violation::new(format!(
                        "a region that epoch {before} has sealed is sealed by epoch {epoch}"
                    )));
                }
                *extent
            }
            _ => None,
        };
        if let Some(extent) = extent.filter(|_| !is_takeover) {
            let told = self.told.entry((process, region)).or_default();
            *told = extent.length.max(*told);
        }
        Ok(())
    }

    /// A process publishes a configuration of a log, of which `needed` bytes must be on q of its
    /// regions: each of these has said so to it, and holds them for as long as its node lives.
    pub(super) fn proposed(
        &mut self,
        process: usize,
        log: u64,
        members: &[Member],
        needed: u32,
        quorum: usize,
    ) -> Result<(), Violation> {
        let holds =
            |member: &&Member| self.told.get(&(process, member.region)).is_some_and(|told| *told >= needed);
        let held_by = members.iter().filter(holds).count();
        if held_by < quorum {
            return Err(Violation::new(format!(
                "log {log}: of a configuration {held_by} regions have said that they hold its {needed} bytes"
            )));
        }
        Ok(())
    }

    /// The writer has made a record.
    pub(super) fn written(&mut self, log: u64, end: u32, digest: Digest) {
        self.logs.entry(log).or_default().written.insert(end, digest);
    }

    /// The writer tells that all up to `end` is acknowledged, however late.
    pub(super) fn acknowledged(&mut self, log: u64, end: u32) -> Result<(), Violation> {
        let known = self.logs.entry(log).or_default();
        if end > known.acknowledged {
            known.acknowledged = end;
            self.acknowledgements += 1;
        }
        match known.served {
            Some(served) if end > served => Err(Violation::new(format!(
                "log {log}: {end} bytes acknowledged after a takeover served {served}"
            ))),
            _ => Ok(()),
        }
    }

    /// A takeover serves so much.
    pub(super) fn served(&mut self, log: u64, length: u32, digest: Digest) -> Result<(), Violation> {
        self.served += 1;
        let known = self.logs.entry(log).or_default();
        let violation = |what: String| Err(Violation::new(format!("log {log}: {what}")));
        if length > 0 && known.written.get(&length) != Some(&digest) {
            return violation(format!("a takeover serves {length} bytes that are not what was written"));
        }
        if length < known.acknowledged {
            return violation(format!(
                "a takeover serves {length} bytes of {} acknowledged",
                known.acknowledged
            ));
        }
        if length < known.shown {
            return violation(format!(
                "a takeover serves {length} bytes of {} that a follower showed",
                known.shown
            ));
        }
        if known.served.is_some_and(|before| before != length) {
            return violation(format!(
                "a takeover serves {length} bytes, one before served {:?}",
                known.served
            ));
        }
        known.served = Some(length);
        Ok(())
    }

    /// A follower shows so much.
    pub(super) fn shown(&mut self, log: u64, length: u32) -> Result<(), Violation> {
        let known = self.logs.entry(log).or_default();
        known.shown = known.shown.max(length);
        match known.served {
            Some(served) if length > served => {
                Err(Violation::new(format!("log {log}: a follower shows {length} bytes of {served} served")))
            }
            _ => Ok(()),
        }
    }
}
