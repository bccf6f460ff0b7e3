//! A lane at rest gives space back: segments made ahead that are much larger than the live bytes,
//! and the segment in use when nothing in it is.
//!
//! A lane rests when next to nothing was appended for a while after a trim. At full rate it never
//! does, so nothing is given back that is wanted again at once.
//!
//! The segment in use is given back by going over into a small one. The replay point is the old
//! one's end then, and the new one's header says that it begins there, so the chain back to the
//! replay point needs the old one no more. A fencer that found the old one and not the new one's
//! header must still be able to read it, so the rule of frames holds for it as well: store the
//! header, full fence, read the fence word, and only if it is not raised delete.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::TaskClass;

use super::lane::{Lane, State, Writer};
use super::segment::FIRST_BYTE;
use crate::LogOffset;
use crate::mutant::{Mutant, is_enabled};

/// How long next to nothing must have been appended.
const REST: Duration = Duration::from_millis(200);

/// Next to nothing. A writer at this rate fills a large segment in ten minutes.
const REST_BYTES: u32 = 24 << 10;

impl Lane {
    /// Looks after a trim whether there is something to give back, and has it given back once the
    /// lane rests.
    pub(super) fn watch_for_rest(self: &Arc<Lane>) {
        let mut seen = {
            let mut writer = self.writer.lock();
            if writer.watched || !self.holds_excess(&writer) {
                return;
            }
            writer.watched = true;
            self.accepted()
        };
        let (lane, env) = (Arc::downgrade(self), self.env.clone());
        let watching = async move {
            loop {
                env.sleep(REST).await;
                match lane.upgrade() {
                    Some(lane) if lane.watch(&mut seen) => {}
                    _ => return,
                }
            }
        };
        self.env.spawn(TaskClass::Background, "log rest", watching).detach();
    }

    /// Gives back if the lane has rested since `seen`; whether there is still something to watch
    /// for.
    fn watch(self: &Arc<Lane>, seen: &mut LogOffset) -> bool {
        {
            let mut writer = self.writer.lock();
            let before = std::mem::replace(seen, self.accepted());
            let rests = before.segment() == seen.segment() && seen.byte() - before.byte() <= REST_BYTES;
            writer.watched = self.holds_excess(&writer) && !rests;
            if !rests {
                return writer.watched;
            }
        }
        self.give_back();
        false
    }

    /// Whether nothing that the lane holds is needed any more. Then only the segment in use is
    /// left.
    fn is_all_trimmed(&self, writer: &Writer) -> bool {
        let end = LogOffset::new(writer.segment.number, writer.position);
        writer.full.is_empty()
            && writer.position > FIRST_BYTE
            && writer.trimmed >= end
            && self.accepted() == end
            && self.durable_through() == end
    }

    /// The segment in use is to be exchanged for a small one.
    fn is_current_excess(&self, writer: &Writer) -> bool {
        matches!(writer.state, State::Open)
            && writer.lost.is_none()
            && !writer.broken
            && self.is_all_trimmed(writer)
            && self.supply.is_excess(writer.segment.capacity, 0)
    }

    /// Bytes that are needed still, but for those of the oldest full segment that are not.
    fn needed_bytes(writer: &Writer) -> u64 {
        let is_in_use = writer.trimmed.segment() == writer.segment.number;
        let from =
            if is_in_use { writer.trimmed.byte().clamp(FIRST_BYTE, writer.position) } else { FIRST_BYTE };
        writer.full_bytes + u64::from(writer.position - from)
    }

    fn holds_excess(&self, writer: &Writer) -> bool {
        self.is_current_excess(writer) || self.supply.holds_excess(Lane::needed_bytes(writer))
    }

    /// Gives back segments that are much larger than the live bytes.
    pub(super) fn give_back(&self) {
        let needed_bytes = {
            let mut writer = self.writer.lock();
            writer.unsynced.drop_spares();
            Lane::needed_bytes(&writer)
        };
        // While this is held a close waits, and nothing is made ahead in between.
        let Some(resting) = self.supply.begin_resting(needed_bytes) else { return };
        if !self.is_current_excess(&self.writer.lock()) {
            return;
        }
        resting.run();
        let mut writer = self.writer.lock();
        if !self.is_current_excess(&writer) || !self.supply.is_ready() {
            return;
        }
        if let Err(error) = self.roll(&mut writer, 0) {
            tracing::warn!(%error, "a log segment that nobody needs stays for now");
            return;
        }
        self.env.preemption_point();
        if self.confirm().is_err() && !is_enabled(Mutant::LogRestDeletesWithoutFenceWord) {
            // The process that raised the word may have found the old segment and not the new one's
            // header.
            return;
        }
        let old = writer.take_oldest().map(|full| full.segment);
        drop(writer);
        self.env.preemption_point();
        if let Some(segment) = old {
            self.supply.retire(segment, false);
        }
    }
}
