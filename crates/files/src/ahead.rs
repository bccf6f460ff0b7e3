//! Bytes of a file that are fetched before they are asked for: one window of each handle.
//!
//! `Ahead::begin → a read within the window waits for it, or copies from it`. A window never
//! changes an answer: one that failed, that a cut of the file made old, or that is on its way for
//! another reader, is passed over, and the read goes to the store.
//!
//! Invariant: windows of one set of files hold at most [`AHEAD_BYTES_MAX`] together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::content::File;
use crate::files::Files;
use crate::io::{Ask, Reading};

/// Most bytes of a window.
pub const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of all windows over one set of files.
pub const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// The window of one handle of a file.
#[derive(Debug, Default)]
pub struct Ahead {
    window: Mutex<Option<Window>>,
}

#[derive(Debug)]
struct Window {
    at: u64,
    cuts: u64,
    fetched: Fetched,
    held: Held,
}

#[derive(Debug)]
enum Fetched {
    Begun(Reading),
    Here(Bytes),
}

/// Counts bytes towards those of all windows while it lives.
#[derive(Debug)]
struct Held {
    bytes: u64,
    total: Arc<AtomicU64>,
}

impl Held {
    /// `None` where there is no room for so many.
    fn take(bytes: u64, total: &Arc<AtomicU64>) -> Option<Held> {
        let held = Held { bytes, total: Arc::clone(total) };
        // It is given back at once where it was too much.
        let before = total.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= AHEAD_BYTES_MAX).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a window has, and where it begins.
enum Found {
    Here(u64, Bytes),
    Begun { reading: Reading, start: u64, cuts: u64, held: Held },
}

impl Ahead {
    /// Begins to fetch `length` bytes at `at`, in the place of the window that there was. Says
    /// whether there was room for it: at most 8 MiB for one, and 64 MiB for all of these files.
    pub fn begin(&self, files: &Files, file: &File, at: u64, length: u64, ask: Ask) -> bool {
        *self.window.lock() = None;
        let size = file.size();
        let length = length.min(size.saturating_sub(at));
        if length == 0 {
            return true;
        }
        if length > WINDOW_BYTES_MAX {
            return false;
        }
        let Some(held) = Held::take(length, &files.ahead_bytes) else { return false };
        let cuts = file.state.lock().cuts;
        let fetched = Fetched::Begun(files.begin_read_as(file, at, length, ask));
        *self.window.lock() = Some(Window { at, cuts, fetched, held });
        true
    }

    /// As [`Files::read`], from the window where that has all of it. Says as well how many
    /// requests the store got for this read.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn read(
        &self,
        files: &Files,
        file: &File,
        at: u64,
        length: u64,
        ask: Ask,
    ) -> Result<(Bytes, usize)> {
        if let Some(bytes) = self.fetched_before(file, at, length).await {
            files.counters.read(file.kind, bytes.len());
            return Ok((bytes, 0));
        }
        let reading = files.begin_read_as(file, at, length, ask);
        let requests = reading.requests();
        Ok((reading.end().await?, requests))
    }

    async fn fetched_before(&self, file: &File, at: u64, length: u64) -> Option<Bytes> {
        let (start, bytes) = match self.find(file, at, length)? {
            Found::Here(start, bytes) => (start, bytes),
            Found::Begun { reading, start, cuts, held } => {
                // What fails here is asked for again by the read itself, which tells.
                let bytes = reading.end().await.ok()?;
                let mut place = self.window.lock();
                // Another may have begun since.
                if place.is_none() {
                    *place = Some(Window { at: start, cuts, fetched: Fetched::Here(bytes.clone()), held });
                }
                (start, bytes)
            }
        };
        let from = usize::try_from(at - start).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        // It may have come back shorter: the read itself finds the end then.
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    }

    /// What the window has of these bytes, if it has all. While it is on its way one reader takes
    /// it out, and others read by themselves.
    fn find(&self, file: &File, at: u64, length: u64) -> Option<Found> {
        let mut place = self.window.lock();
        let window = place.as_ref()?;
        if window.cuts != file.state.lock().cuts && !is_enabled(Mutant::FilesWindowOutlivesCut) {
            *place = None;
            return None;
        }
        if at < window.at || at.checked_add(length)? > window.at + window.held.bytes {
            return None;
        }
        if let Fetched::Here(bytes) = &window.fetched {
            return Some(Found::Here(window.at, bytes.clone()));
        }
        match place.take()? {
            Window { at: start, cuts, fetched: Fetched::Begun(reading), held } => {
                Some(Found::Begun { reading, start, cuts, held })
            }
            Window { fetched: Fetched::Here(_), .. } => None,
        }
    }
}
