//! What must hold of every log: what was acknowledged is found, what was served or shown is never taken back.

use std::collections::BTreeMap;

use tombolo_format::segment_record::Digest;

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
    pub(super) acknowledgements: u64,
    pub(super) served: u64,
}

impl Checker {
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
            Some(served) if end > served => {
                Err(Violation::new(format!("log {log}: {end} bytes acknowledged after a takeover served {served}")))
            }
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
            return violation(format!("a takeover serves {length} bytes of {} acknowledged", known.acknowledged));
        }
        if length < known.shown {
            return violation(format!("a takeover serves {length} bytes of {} that a follower showed", known.shown));
        }
        if known.served.is_some_and(|before| before != length) {
            return violation(format!("a takeover serves {length} bytes, one before served {:?}", known.served));
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
