//! The control page of a lane: identity, fence word, and what the writer says about itself. Mapped
//! by the writer and by every fencer.
//!
//! The fence (rule 8) is two words in two places. The writer stores its record, then loads the
//! fence word; the fencer stores the word, then loads the records; a full fence lies between on
//! both sides. So at least one of them sees the other. Everything else on the page only sharpens
//! what a scan finds, and is believed only under its check.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::file::read_exact_at;
use tombolo_env::{Access, Env, File, Mapping};
use tombolo_format::log_frame::{FENCE_WORD_OFFSET, LANE_PAGE_BYTES, LANE_WORDS_OFFSET, LaneHeader};

use crate::mutant::{Mutant, is_enabled};
use crate::{Epoch, Error, ErrorKind, LogOffset, Result};

/// Name of the control page's file.
pub(super) const CONTROL_NAME: &str = "control";

/// A checked word of the page: 8 bytes of value, 8 of check. Each on a cache line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// What the writer made durable.
    Durable,
    /// What the writer accepted. Worth something as long as the boot lasts.
    Accepted,
    /// What a fencer sealed and synced.
    Sealed,
}

impl Word {
    const fn place(self) -> usize {
        LANE_WORDS_OFFSET
            + 64 * match self {
                Word::Durable => 0,
                Word::Accepted => 1,
                Word::Sealed => 2,
            }
    }
}

/// Where the boot id of the writer's host lies: two words, low first.
const BOOT_ID_OFFSET: usize = LANE_WORDS_OFFSET + 192;

/// The check of a word's value: a bijection of the value, so that no damage to one of the two goes
/// unseen; set with every append, so cheap.
fn check(owner: &LaneHeader, word: Word, value: u64) -> u64 {
    let identity = owner.incarnation ^ owner.epoch.rotate_left(32) ^ (u64::from(owner.lane) << 16);
    (value ^ !identity ^ word.place() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Opens the page of a lane that the manifest names, and reads it once.
fn read_page(
    env: &Env,
    directory: &Path,
    owner: LaneHeader,
    access: Access,
) -> Result<(PathBuf, Arc<dyn File>, [u8; LANE_PAGE_BYTES])> {
    let path = directory.join(CONTROL_NAME);
    let file = env.files().open(&path, access).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::corrupt(path.display(), 0, "the control page of a log that the manifest names", "no file")
        }
        _ => Error::io(error, "opening a log", path.display()),
    })?;
    let mut bytes = [0; LANE_PAGE_BYTES];
    read_exact_at(&*file, &mut bytes, 0).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corrupt(
            path.display(),
            0,
            format!("{LANE_PAGE_BYTES} bytes"),
            format!("{} bytes", file.length().unwrap_or(0)),
        ),
        _ => Error::io(error, "reading a log's control page", path.display()),
    })?;
    let found = LaneHeader::decode(&bytes).map_err(|error| Error::format(path.display(), 0, error))?;
    if found != owner {
        return Err(Error::corrupt(path.display(), 32, format!("{owner:?}"), format!("{found:?}")));
    }
    Ok((path, file, bytes))
}

/// A control page as one read found it, for callers that change nothing.
#[derive(Debug)]
pub(super) struct PageRead {
    bytes: [u8; LANE_PAGE_BYTES],
    path: PathBuf,
    owner: LaneHeader,
}

impl PageRead {
    /// Reads the page of a lane that the manifest names.
    ///
    /// # Errors
    /// As [`Control::open`].
    pub(super) fn of(env: &Env, directory: &Path, owner: LaneHeader) -> Result<PageRead> {
        let (path, _, bytes) = read_page(env, directory, owner, Access::Read)?;
        Ok(PageRead { bytes, path, owner })
    }

    fn word(&self, offset: usize) -> u64 {
        self.bytes[offset..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// As [`Control::boot_id`].
    pub(super) fn boot_id(&self) -> u128 {
        u128::from(self.word(BOOT_ID_OFFSET)) | (u128::from(self.word(BOOT_ID_OFFSET + 8)) << 64)
    }

    /// As [`Control::get`].
    pub(super) fn get(&self, word: Word) -> Option<LogOffset> {
        let value = self.word(word.place());
        (self.word(word.place() + 8) == check(&self.owner, word, value)).then_some(LogOffset(value))
    }

    /// What tells of the page in an error.
    pub(super) fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// How the writer's own words get into the page. The fence word is always stored through the
/// mapping: a successor raises it by one atomic operation, while a write of its bytes could show,
/// between two successors, a word that is not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Through the mapping, without a system call.
    Mapped,
    /// By `pwrite`: where the file system copies on write, a full disk is then no end of the
    /// process.
    Written,
}

/// An open control page.
#[derive(Debug)]
pub(super) struct Control {
    words: Words,
    file: Arc<dyn File>,
    page: Arc<dyn Mapping>,
    path: PathBuf,
    owner: LaneHeader,
}

impl Control {
    /// Makes the page of a new lane, durably but for its name.
    pub(super) fn create(env: &Env, directory: &Path, owner: LaneHeader, words: Words) -> Result<Control> {
        let path = directory.join(CONTROL_NAME);
        let make = || {
            let file = env.files().create_new(&path)?;
            let mut bytes = owner.encode();
            bytes[BOOT_ID_OFFSET..][..16].copy_from_slice(&env.boot_id().to_le_bytes());
            file.write_all_at(&bytes, 0)?;
            file.sync_data()?;
            let page = file.map(LANE_PAGE_BYTES)?;
            Ok((file, page))
        };
        let (file, page) = make().map_err(|error| Error::io(error, "making a log", path.display()))?;
        Ok(Control { words, file, page, path, owner })
    }

    /// Opens the page of a lane that the manifest names.
    ///
    /// # Errors
    /// `Corrupt` when it is missing, cut, damaged, or another's.
    pub(super) fn open(env: &Env, directory: &Path, owner: LaneHeader) -> Result<Control> {
        let (path, file, _) = read_page(env, directory, owner, Access::ReadWrite)?;
        let page = file
            .map(LANE_PAGE_BYTES)
            .map_err(|error| Error::io(error, "mapping a log's control page", path.display()))?;
        Ok(Control { words: Words::Mapped, file, page, path, owner })
    }

    /// The boot of the host in which the writer lived. Damaged, it is no host's: then less is known
    /// about the tail, and nothing wrong.
    pub(super) fn boot_id(&self) -> u128 {
        let word = |offset| u128::from(self.page.load_u64(offset));
        word(BOOT_ID_OFFSET) | (word(BOOT_ID_OFFSET + 8) << 64)
    }

    /// The fencer's store: raises the word to `epoch`, and fences it from every load that follows.
    pub(super) fn raise(&self, epoch: Epoch) {
        self.page.fetch_max_u64(FENCE_WORD_OFFSET, epoch.0);
        self.page.full_fence();
    }

    /// The writer's load: fences it from every store before, and tells which later epoch has raised
    /// the word.
    #[inline]
    pub(super) fn raised_by(&self, env: &Env) -> Option<Epoch> {
        if !is_enabled(Mutant::LogAcceptsWithoutFullFence) {
            self.page.full_fence();
        }
        env.preemption_point();
        let word = self.page.load_u64(FENCE_WORD_OFFSET);
        (word > self.owner.epoch).then_some(Epoch(word))
    }

    fn check(&self, word: Word, value: u64) -> u64 {
        check(&self.owner, word, value)
    }

    /// Sets a checked word: for the writer alone. Durable when the kernel writes the page back, or
    /// with [`Control::sync`].
    pub(super) fn set(&self, word: Word, offset: LogOffset) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&offset.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.check(word, offset.0).to_le_bytes());
        match self.words {
            Words::Mapped => self.page.write(word.place(), &bytes),
            // An older word only sharpens less, and a torn one says nothing; what fills the disk is
            // told by the log's own writes.
            Words::Written => drop(self.file.write_all_at(&bytes, word.place() as u64)),
        }
    }

    /// Raises a checked word to `offset` if it is lower. Of two that race, the loser's check may
    /// stay with the winner's value: then the word says nothing, which is safe.
    pub(super) fn raise_word(&self, word: Word, offset: LogOffset) {
        let before = self.page.fetch_max_u64(word.place(), offset.0);
        self.page.store_u64(word.place() + 8, self.check(word, before.max(offset.0)));
    }

    /// What a checked word says; `None` when it was never set, is torn, or damaged.
    pub(super) fn get(&self, word: Word) -> Option<LogOffset> {
        let value = self.page.load_u64(word.place());
        let check = self.page.load_u64(word.place() + 8);
        (check == self.check(word, value)).then_some(LogOffset(value))
    }

    /// Makes the page durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|error| Error::io(error, "syncing a log's control page", self.path.display()))
    }

    /// The error that a fenced writer gets.
    pub(super) fn fenced(&self, by: Epoch) -> Error {
        Error::new(
            ErrorKind::Fenced,
            format!("epoch {by} has fenced this log; what was in flight is of unknown outcome"),
        )
        .object(self.path.display())
        .advice("this handle is finished: open the database again, which takes it over")
    }
}
