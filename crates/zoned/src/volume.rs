//! An open device, and what all parts of a store share of it.

use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use tombolo_env::{Env, ZoneGeometry};
use tombolo_format::zoned::Superblock;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::{Counted, Counts, Device, ZoneState};
use crate::failed;
use crate::generation::{MetadataCounts, MetadataLog, MetadataZone};
use crate::lanes::LogCore;
use crate::state::State;
use crate::zones::Zones;

/// What happened on a device since this process holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Of the metadata.
    pub metadata: MetadataCounts,
    /// Bytes that bodies were given, in whole blocks, those that were moved included.
    pub data_bytes: u64,
    /// Bytes written to log zones.
    pub log_bytes: u64,
    /// Bytes of bodies that were moved.
    pub relocated_bytes: u64,
    /// Zones that they were moved out of.
    pub relocated_zones: u64,
    /// Bytes of log that were written again, so that an old zone could go.
    pub rewritten_log_bytes: u64,
}

/// Syncs, of which those that wait share one.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Syncs that were begun and ended well; and failures.
    done: Mutex<(u64, u64)>,
    /// Whose turn it is.
    turn: Mutex<()>,
    begun: Mutex<u64>,
}

/// An open device.
#[derive(Debug)]
pub struct Core {
    pub(crate) env: Env,
    pub(crate) device: Counted,
    pub(crate) id: u128,
    pub(crate) superblock: Superblock,
    pub(crate) geometry: ZoneGeometry,
    /// Bytes that each zone takes.
    pub(crate) capacities: Vec<u64>,
    pub(crate) state: RwLock<State>,
    /// Held while a transaction is written: taken before `zones` and `state`, in this order, and
    /// after the log's.
    pub(crate) metadata: Mutex<MetadataLog>,
    pub(crate) last_generation: Mutex<u64>,
    pub(crate) zones: Mutex<Zones>,
    pub(crate) moving: Mutex<()>,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) log: LogCore,
    pub(crate) syncs: Syncs,
    /// What became of a change is not known: no zone is emptied until a generation without it is
    /// durable.
    pub(crate) is_outcome_unknown: AtomicBool,
    /// Whether this process holds the device.
    pub(crate) is_held: bool,
    /// Metadata zones as they were before they were read.
    pub(crate) looked_at: Vec<MetadataZone>,
    /// What mounting found, and takes nothing away.
    pub(crate) notes: Vec<String>,
}

impl Core {
    /// Bytes of a block.
    pub(crate) fn block(&self) -> usize {
        self.geometry.block_bytes as usize
    }

    /// Syncs that failed so far. Asked before the first of the writes that a sync is to make
    /// durable: what a failed sync dropped, the next one does not bring back.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.syncs.done.lock().1
    }

    /// Makes all durable that was written since so many syncs had failed, and before this call. Of
    /// those that wait, one syncs for all.
    ///
    /// # Errors
    /// The device's, and `Retry` when a sync failed meanwhile: what was not durable may never
    /// become so.
    pub(crate) fn sync_since(&self, failures: u64) -> Result<()> {
        let mine = *self.syncs.begun.lock() + 1;
        let _turn = self.syncs.turn.lock();
        let (through, failed_now) = *self.syncs.done.lock();
        if failed_now > failures {
            return Err(Error::new(ErrorKind::Retry, "a sync failed; what was not durable may be lost")
                .object(self.device.describe())
                .advice("write it again"));
        }
        if through >= mine {
            return Ok(());
        }
        let number = {
            let mut begun = self.syncs.begun.lock();
            *begun += 1;
            *begun
        };
        let synced = self.device.sync();
        let mut done = self.syncs.done.lock();
        match synced {
            Ok(()) => {
                done.0 = number;
                Ok(())
            }
            Err(error) => {
                done.1 += 1;
                Err(failed(&self.device, error, "making zones durable"))
            }
        }
    }

    /// The error of a read, by what the device says of the zone now.
    pub(crate) fn read_failed(&self, error: std::io::Error, zone: u32) -> Error {
        let is_offline = self
            .device
            .report()
            .is_ok_and(|zones| zones.get(zone as usize).is_some_and(|zone| zone.state == ZoneState::Offline));
        if !is_offline {
            return failed(&self.device, error, format!("reading zone {zone}"));
        }
        Error::new(ErrorKind::Corrupt, format!("zone {zone} went offline with data in it"))
            .object(self.device.describe())
            .source(error)
            .advice("restore what it held from a copy: `tombolo zoned fsck` lists it")
    }

    /// Operations of the device since it was opened.
    pub fn counts(&self) -> Counts {
        self.device.counts()
    }
}
