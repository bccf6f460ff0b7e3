//! What RocksDB says of a request and of a file, as numbers of `shim/bridge.h`.

use std::time::Duration;

use tombolo::Life;
use tombolo_files::Ask;
use tombolo_storage::Priority;

/// How a read is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TomboloAsk {
    /// How long it may take; 0 for ever.
    pub(crate) timeout_micros: u64,
    /// 0 nobody waits, 1 ordinary, 2 a user waits.
    pub(crate) priority: i32,
}

impl TomboloAsk {
    pub(crate) fn get(self) -> Ask {
        let within = (self.timeout_micros > 0).then(|| Duration::from_micros(self.timeout_micros));
        Ask { within, priority: priority_of(self.priority) }
    }
}

pub(crate) fn priority_of(number: i32) -> Priority {
    match number {
        0 => Priority::Low,
        2 => Priority::High,
        _ => Priority::Normal,
    }
}

/// How long a file is expected to stay: 0 minutes, 1 hours, else days.
pub(crate) fn life_of(number: i32) -> Life {
    match number {
        0 => Life::Short,
        1 => Life::Medium,
        _ => Life::Long,
    }
}
