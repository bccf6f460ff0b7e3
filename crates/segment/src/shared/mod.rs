//! Regions in memory that a node shares with writers of the same host, who store there themselves.
//!
//! The memory is a file of a tmpfs that both map, one for each region, made when the region's owner
//! asks for it:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLSHRG` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of this page (4096) |
//! | 16 | 16 | region |
//! | 32 | 8 | incarnation of the node |
//! | 40 | 4 | most bytes of records |
//! | 44 | 4 | CRC-32C of bytes 0–43 |
//! | 1024 | 8 | seal word: 0; the epoch that sealed; all ones once it is freed |
//! | 1032 | 8 | taken word: 1 once a writer has all of the memory, before it stores anything; else 0 |
//! | 1040 | 8 | length word: 1 + bytes of records, once they are sealed and somebody asked to read them here; else 0 |
//! | 4096 | | records |
//!
//! **The fence** is rule 8 of the local log. The writer stores a record, issues a full fence, reads
//! the seal word, and takes the record for held when the word is zero. (A record that goes to three
//! nodes is stored three times first, so that only the first of its three fences waits for
//! anything.) The node stores the word, issues a full fence, and reads the records: it finds all
//! that were taken for held, and perhaps the next. It copies what it reads before it checks it. Of
//! an open region it keeps that copy. Of a sealed one it keeps the digest of all and the memory,
//! and answers from there: a writer that stores later stores what lies there already, or behind it,
//! since no offset is ever sent with other bytes; and readers check by that digest.
//!
//! **Memory that is not there.** A tmpfs may be full, and a process that touches a page that it
//! cannot give is ended by a signal: a node with the regions of all. So a writer takes all pages
//! before it says so in the taken word, and the node touches nothing but its own page before that.
//! A word that is 0 after the seal's fence means that whatever that writer stores later meets the
//! seal.
//!
//! **Permitted readers read sealed bytes here**, if they are of this host as well: a reader asks
//! the node for the memory, as the writer did, and reads the file. The node says in the length word
//! how much of it counts: a deposed writer may have stored more behind that. Readers check by the
//! digest of the seal, as for bytes that come over a network. So the file stays until the region is
//! freed.
//!
//! Nothing here is `unsafe`: [`Mapping`] is the safe face of shared memory, with its twin in the
//! simulated world.
//!
//! A node that dies leaves its writers storing to memory that nobody will read. That is a region
//! lost, as if it had died a moment later, and the connection to the node, which ends with it, says
//! so. Its files go when a node is started on the directory again.

mod peer;
mod reading;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::{Access, Completion, Env, Mapping, completion};
use tombolo_format::checksum::crc32c;
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::lent::{End, Lent};
use crate::message::{Answer, NodeIncarnation, RegionId};

pub use peer::SharedPeer;

/// First bytes of a shared region.
pub const SHARED_MAGIC: [u8; 8] = *b"TMBLSHRG";
/// Where records begin.
pub const SHARED_HEADER_BYTES: usize = 4096;
/// Where the seal word lies.
pub const SEAL_WORD_OFFSET: usize = 1024;
/// Where the taken word lies.
pub const TAKEN_WORD_OFFSET: usize = 1032;
/// Where the length word lies.
pub const LENGTH_WORD_OFFSET: usize = 1040;
const VERSION: u32 = 1;
/// Bytes of the header up to its checksum.
const FIELDS_BYTES: usize = 44;
/// The seal word of a region that was freed.
const FREED: u64 = u64::MAX;

/// A region that is shared, as either side sees it.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapping: Arc<dyn Mapping>,
    path: PathBuf,
    bytes_max: u32,
}

fn header(region: RegionId, incarnation: NodeIncarnation, bytes_max: u32) -> [u8; FIELDS_BYTES + 4] {
    let mut out = [0; FIELDS_BYTES + 4];
    out[..8].copy_from_slice(&SHARED_MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&4096u32.to_le_bytes());
    out[16..32].copy_from_slice(&region.0.to_le_bytes());
    out[32..40].copy_from_slice(&incarnation.0.to_le_bytes());
    out[40..44].copy_from_slice(&bytes_max.to_le_bytes());
    let checksum = crc32c(&out[..FIELDS_BYTES]);
    out[FIELDS_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn not_its_memory(path: &Path, region: RegionId) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} is not the memory of region {region}", path.display()),
    )
}

impl SharedMemory {
    /// Makes the memory of a region, on the node's side.
    pub(crate) fn create(
        env: &Env,
        directory: &Path,
        region: RegionId,
        incarnation: NodeIncarnation,
        bytes_max: u32,
    ) -> io::Result<SharedMemory> {
        let path = directory.join(format!("region-{region}"));
        let file = env.files().create_new(&path)?;
        let length = SHARED_HEADER_BYTES + bytes_max as usize;
        let map = || {
            // What the node touches whether or not a writer ever comes.
            file.allocate(SHARED_HEADER_BYTES as u64)?;
            file.set_length(length as u64)?;
            file.map(length)
        };
        let mapping = map().inspect_err(|_| {
            let _removed = env.files().remove_file(&path);
        })?;
        mapping.write(0, &header(region, incarnation, bytes_max));
        // A process that learns of the file reads its header.
        mapping.full_fence();
        Ok(SharedMemory { mapping, path, bytes_max })
    }

    /// Maps the memory that a node has named, on the writer's side.
    pub(crate) fn open(
        env: &Env,
        path: &Path,
        region: RegionId,
        incarnation: NodeIncarnation,
        bytes_max: u32,
    ) -> io::Result<SharedMemory> {
        let file = env.files().open(path, Access::ReadWrite)?;
        let length = SHARED_HEADER_BYTES + bytes_max as usize;
        let mapping = file.map(length)?;
        let (expected, mut found) = (header(region, incarnation, bytes_max), [0; FIELDS_BYTES + 4]);
        mapping.read(0, &mut found);
        if found != expected {
            return Err(not_its_memory(path, region));
        }
        // Page faults now, and not one for every eight appends.
        mapping.populate(0, length)?;
        mapping.fetch_max_u64(TAKEN_WORD_OFFSET, 1);
        mapping.full_fence();
        Ok(SharedMemory { mapping, path: path.to_owned(), bytes_max })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stores records, on the writer's side. Whether they are held [`SharedMemory::end_store`]
    /// says.
    pub(crate) fn begin_store(&self, offset: u32, records: &[u8]) -> Stored {
        let early =
            is_enabled(Mutant::SharedWordCheckedBeforeStore).then(|| self.mapping.load_u64(SEAL_WORD_OFFSET));
        self.mapping.write(SHARED_HEADER_BYTES + offset as usize, records);
        Stored { early }
    }

    /// Stored bytes are held when nothing had been sealed by the end of a full fence behind them;
    /// else what the seal word says.
    pub(crate) fn end_store(&self, Stored { early }: Stored) -> Result<(), Sealed> {
        if !is_enabled(Mutant::SharedStoredWithoutFence) {
            self.mapping.full_fence();
        }
        match early.unwrap_or_else(|| self.mapping.load_u64(SEAL_WORD_OFFSET)) {
            0 => Ok(()),
            FREED => Err(Sealed::Freed),
            epoch => Err(Sealed::By(Epoch(epoch))),
        }
    }

    /// Ends the writer's storing: whatever it took for held by now is there to be read, and it
    /// takes nothing for held any more.
    fn end_with(&self, word: u64) {
        self.mapping.fetch_max_u64(SEAL_WORD_OFFSET, word.max(1));
        self.mapping.full_fence();
    }
}

impl Lent for SharedMemory {
    fn bytes_max(&self) -> u32 {
        self.bytes_max
    }

    fn end(&mut self, why: End) -> tombolo_storage::Result<()> {
        self.end_with(match why {
            End::Sealed(epoch) => epoch.0,
            End::Freed => FREED,
        });
        Ok(())
    }

    fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool {
        // Before a writer has taken all of it, to touch it may end the process.
        let is_taken = self.mapping.load_u64(TAKEN_WORD_OFFSET) != 0;
        if is_taken {
            self.mapping.read(SHARED_HEADER_BYTES + offset as usize, buffer);
        }
        is_taken
    }

    fn stays(&self) -> Option<(Arc<dyn Mapping>, usize)> {
        Some((Arc::clone(&self.mapping), SHARED_HEADER_BYTES))
    }

    fn tell_length(&self, bytes: u32) {
        self.mapping.fetch_max_u64(LENGTH_WORD_OFFSET, u64::from(bytes) + 1);
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_read_early(&self) -> bool {
        is_enabled(Mutant::SharedReadsBeforeWord)
    }
}

/// Records that were stored, of which it is not known yet whether they are held.
#[derive(Debug)]
#[must_use]
pub(crate) struct Stored {
    /// For tests: a seal word that was read too early.
    early: Option<u64>,
}

/// Why stored bytes are not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    By(Epoch),
    Freed,
}

fn answered(answer: tombolo_storage::Result<Answer>) -> Completion<tombolo_storage::Result<Answer>> {
    let (completer, completion) = completion();
    completer.complete(answer);
    completion
}

/// Deletes the memory that an earlier node left in a directory, which this one alone has now.
pub(crate) fn clear_directory(env: &Env, directory: &Path) -> tombolo_storage::Result<()> {
    let failed =
        |error| tombolo_storage::Error::io(error, "clearing a node's shared memory", directory.display());
    for entry in env.files().list_atomically(directory).map_err(failed)? {
        if entry.name.starts_with("region-") {
            env.files().remove_file(&directory.join(entry.name)).map_err(failed)?;
        }
    }
    Ok(())
}
