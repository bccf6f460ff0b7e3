//! The settings of an open database, which change while it runs.
//!
//! What a write asks for is kept beside in atomics, so that it costs one load; everything else
//! reads the whole.
//!
//! Invariant: the atomics are those of `current`, or of settings that replaced it during the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tombolo_storage::Result;

use super::Options;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct LiveOptions {
    current: ArcSwap<Options>,
    memtable_bytes: AtomicU64,
    writes_in_flight_max: AtomicU64,
    changing: Mutex<()>,
}

impl LiveOptions {
    pub(crate) fn new(options: Options) -> LiveOptions {
        LiveOptions {
            memtable_bytes: AtomicU64::new(options.memtable_bytes()),
            writes_in_flight_max: AtomicU64::new(options.writes_in_flight_max),
            current: ArcSwap::from_pointee(options),
            changing: Mutex::default(),
        }
    }

    /// All settings as they are now.
    pub(crate) fn load(&self) -> Guard<Arc<Options>> {
        self.current.load()
    }

    /// Bytes of one memtable.
    #[inline]
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Most writes that may be unfinished at once.
    #[inline]
    pub(crate) fn writes_in_flight_max(&self) -> u64 {
        self.writes_in_flight_max.load(Ordering::Relaxed)
    }

    /// Replaces the settings by what `change` makes of them, all at once or not at all. `apply` is
    /// given the new ones before they count, and may refuse them.
    ///
    /// # Errors
    /// `Invalid` of the change; what `apply` refuses.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Options) -> Result<()>,
        apply: impl FnOnce(&Options) -> Result<()>,
    ) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let mut new = Options::clone(&self.current.load());
        change(&mut new)?;
        new.check()?;
        apply(&new)?;
        self.memtable_bytes.store(new.memtable_bytes(), Ordering::Relaxed);
        self.writes_in_flight_max.store(new.writes_in_flight_max, Ordering::Relaxed);
        self.current.store(Arc::new(new));
        Ok(())
    }
}
