//! Space kept back for what makes space.
//!
//! On a full disk compaction, flush and the manifest must go on, for they are what frees tables and
//! logs. So, once space runs low, a file `tmp/reserve` takes some of it. Where one of those
//! requests then finds the disk full, half of the reserve is given back and the request goes on; so
//! often until nothing is left. It is built again when there is room, and removed when there is
//! plenty. New segments of a log leave that much free as well ([`leaves_room`]), so that user
//! writes stop before what trims the log does.
//!
//! Invariants:
//! - One process at a time owns the file, by its lock, and no other touches it.
//! - Losing the reserve loses nothing but itself: no error of it reaches a request.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Access, Env, File, Space};

use super::{LocalObjectStore, TEMPORARY_DIRECTORY};
use crate::{Error, ErrorKind, Purpose, Request, Result};

/// Name of the file in the directory of temporary files. A sweep leaves it alone: it does not end
/// as theirs do.
pub(super) const NAME: &str = "reserve";

/// The largest reserve: a table of full size, beside which a compaction frees its inputs.
const BYTES_MAX: u64 = 64 << 20;
/// The part of a small disk that is kept back.
const DISK_PART: u64 = 32;
/// A reserve below this is not worth a file.
const BYTES_MIN: u64 = 256 << 10;
/// With so much free, or a tenth of the disk if that is less, nothing is kept back.
const PLENTY_BYTES: u64 = 16 << 30;

/// The reserve of one store in one process.
#[derive(Debug, Default)]
pub(super) struct Reserve(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    file: Option<Arc<dyn File>>,
    /// Invariant: the file's length; 0 without a file.
    bytes: u64,
}

/// The reserve that a disk of this size is to have when space runs low.
fn target(space: Space) -> u64 {
    let bytes = (space.total / DISK_PART).min(BYTES_MAX);
    if bytes < BYTES_MIN { 0 } else { bytes }
}

/// Whether `bytes` can be taken for a log and what makes space still finds room. A disk that does
/// not tell has room.
pub(crate) fn leaves_room(env: &Env, directory: &Path, bytes: u64) -> bool {
    env.files().space(directory).map_or(true, |space| space.available >= bytes.saturating_add(target(space)))
}

/// Whether a request makes space, sooner or later.
fn may_draw(request: Request) -> bool {
    match request.purpose {
        Purpose::Open | Purpose::Manifest | Purpose::Flush | Purpose::Compaction | Purpose::Collection => {
            true
        }
        Purpose::Log | Purpose::Get | Purpose::Scan | Purpose::Verify | Purpose::Application => false,
    }
}

impl Reserve {
    /// Builds, keeps or removes the reserve, as the space says. Called before a table is written.
    pub(super) fn tend(&self, store: &LocalObjectStore, request: Request) {
        if !matches!(request.purpose, Purpose::Flush | Purpose::Compaction) {
            return;
        }
        let Ok(space) = store.files().space(&store.shared.root) else { return };
        let mut held = self.0.lock();
        let free = space.available.saturating_add(held.bytes);
        if free >= PLENTY_BYTES.min(space.total / 10).max(2 * BYTES_MAX) {
            held.give_back(0);
            if held.file.take().is_some() {
                let _ = store.files().remove_file(&path(store));
            }
            return;
        }
        let wanted = target(space);
        // Twice as much must stay free: a reserve that fills the disk itself would be drawn at
        // once.
        if held.bytes < wanted && space.available >= (wanted - held.bytes) + wanted {
            held.build(store, wanted);
        }
    }

    /// Gives half of the reserve back; whether there was any.
    fn draw(&self) -> bool {
        let mut held = self.0.lock();
        let before = held.bytes;
        let half = before / 2;
        held.give_back(if half < BYTES_MIN { 0 } else { half });
        held.bytes < before
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }
}

fn path(store: &LocalObjectStore) -> std::path::PathBuf {
    store.shared.root.join(TEMPORARY_DIRECTORY).join(NAME)
}

impl Held {
    fn build(&mut self, store: &LocalObjectStore, wanted: u64) {
        if self.file.is_none() {
            self.file = open(store).ok().flatten();
            self.bytes = self.file.as_ref().map_or(0, |file| file.length().unwrap_or(0));
        }
        let Some(file) = &self.file else { return };
        if self.bytes < wanted {
            // Space that is not there, or a file system that cannot take it: there is no reserve,
            // or a smaller one.
            let _ = file.allocate(wanted);
            self.bytes = file.length().unwrap_or(self.bytes);
            tracing::info!(bytes = self.bytes, "space runs low; a reserve is kept");
        }
    }

    fn give_back(&mut self, left: u64) {
        if let Some(file) = &self.file
            && self.bytes > left
            && file.set_length(left).is_ok()
        {
            // A length that is not durable frees nothing on some file systems.
            let _ = file.sync_data();
            self.bytes = left;
        }
    }
}

/// Opens or makes the file; `None` when another process has it.
fn open(store: &LocalObjectStore) -> io::Result<Option<Arc<dyn File>>> {
    let path = path(store);
    store.ensure_directory(&store.shared.root.join(TEMPORARY_DIRECTORY))?;
    let file = match store.files().create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            store.files().open(&path, Access::ReadWrite)?
        }
        created => created?,
    };
    Ok(file.try_lock()?.then_some(file))
}

impl LocalObjectStore {
    /// Gives space back for the next attempt at what ended with `error` and cannot simply go on:
    /// after a sync that failed nothing is known of what was written.
    pub(super) fn draw_after(&self, request: Request, error: &Error) {
        if error.kind() == ErrorKind::OutOfSpace && may_draw(request) && self.shared.reserve.draw() {
            tracing::warn!(%error, "the disk is full; the reserve gives space back for another attempt");
        }
    }

    /// Makes `attempt`, and again with what the reserve gives back while the disk is full, if the
    /// request is one that makes space.
    pub(super) fn with_reserve<T>(
        &self,
        request: Request,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        loop {
            match attempt() {
                Err(error)
                    if error.kind() == ErrorKind::OutOfSpace
                        && may_draw(request)
                        && self.shared.reserve.draw() =>
                {
                    tracing::warn!(%error, "the disk is full; the reserve gives space back");
                }
                outcome => return outcome,
            }
        }
    }
}
