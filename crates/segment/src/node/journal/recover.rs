//! What a node finds of its earlier lives on its disk.
//!
//! Whatever is found is read only: nothing is made or appended there any more, so that what a
//! damaged end of a journal may have held (a seal, a tombstone) can not be contradicted. New
//! regions belong to a new life.

use std::io;
use std::path::{Path, PathBuf};

use tombolo_env::{Access, Env};
use tombolo_format::Result as FormatResult;
use tombolo_format::codec::Reader;
use tombolo_format::log_frame::{
    DURABLE_SLOT_OFFSET, FrameScanner, SEGMENT_HEADER_BYTES, SegmentHeader, Verdict, decode_durable_slot,
    greatest_durable_through,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{End, KIND_BYTES, file_path, header_bytes, identity};
use crate::message::{NodeIncarnation, NodeMedium};
use crate::region::Regions;
use crate::wire::Kind;
use crate::wire::body::Message;

/// The file that says that a life ended cleanly.
pub(in crate::node) const CLEAN: &str = "clean";

/// A life that was found.
#[derive(Debug)]
pub(in crate::node) struct Found {
    pub(in crate::node) directory: PathBuf,
    pub(in crate::node) regions: Regions,
    pub(in crate::node) end: End,
    is_damaged: bool,
}

/// The directory of a life.
pub(in crate::node) fn life_directory(root: &Path, life: NodeIncarnation, medium: NodeMedium) -> PathBuf {
    let medium = if medium == NodeMedium::Disk { "disk" } else { "copy" };
    root.join(format!("life-{life}-{medium}"))
}

/// The life and medium that a directory's name says.
fn parse_directory(name: &str) -> Option<(NodeIncarnation, NodeMedium)> {
    let (life, medium) = name.strip_prefix("life-")?.split_once('-')?;
    let medium = match medium {
        "disk" => NodeMedium::Disk,
        "copy" => NodeMedium::MemoryWithCopy,
        _ => return None,
    };
    (life.len() == 16)
        .then(|| u64::from_str_radix(life, 16).ok())
        .flatten()
        .map(|life| (NodeIncarnation(life), medium))
}

/// Numbers of a journal's files, in order.
pub(super) fn files(env: &Env, directory: &Path) -> io::Result<Vec<u32>> {
    let names = env.files().list_atomically(directory)?;
    let mut numbers: Vec<u32> =
        names.iter().filter_map(|entry| entry.name.strip_prefix("journal-")?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What the name of a life's directory ends with once the life is over.
const GONE: &str = ".gone";

/// Deletes a life's directory. It has another name first, so that its rest when that
/// breaks off is taken for no life.
pub(super) fn remove_life(env: &Env, directory: &Path) -> io::Result<()> {
    let mut gone = directory.as_os_str().to_owned();
    gone.push(GONE);
    let gone = PathBuf::from(gone);
    env.files().rename(directory, &gone)?;
    if let Some(root) = directory.parent() {
        env.files().sync_directory(root)?;
    }
    remove_gone(env, &gone)
}

fn remove_gone(env: &Env, directory: &Path) -> io::Result<()> {
    for entry in env.files().list_atomically(directory)? {
        env.files().remove_file(&directory.join(entry.name))?;
    }
    env.files().remove_directory(directory)
}

/// All lives under `root` that hold something; others are deleted.
///
/// # Errors
/// What the disk says. Damage is none: it is told, and bounds what a life answers.
pub(in crate::node) fn all(env: &Env, root: &Path) -> Result<Vec<Found>> {
    let failed = |error| Error::io(error, "reading a node's disk", root.display());
    let mut lives = Vec::new();
    for entry in env.files().list_atomically(root).map_err(failed)? {
        if entry.is_directory && entry.name.strip_suffix(GONE).and_then(parse_directory).is_some() {
            remove_gone(env, &root.join(&entry.name)).map_err(failed)?;
            continue;
        }
        let Some((life, medium)) = parse_directory(&entry.name).filter(|_| entry.is_directory) else {
            continue;
        };
        let directory = root.join(&entry.name);
        match recover(env, &directory, life, medium).map_err(failed)? {
            Some(found) if found.regions.occupancy().regions > 0 => lives.push(found),
            // Somebody may want to look at it.
            Some(found) if found.is_damaged => {}
            _ => remove_life(env, &directory).map_err(failed)?,
        }
    }
    // In one order in every run.
    lives.sort_by_key(|found| found.regions.incarnation());
    Ok(lives)
}

/// Replays a life. `None`: what it had acknowledged is not known to be here.
fn recover(
    env: &Env,
    directory: &Path,
    life: NodeIncarnation,
    medium: NodeMedium,
) -> io::Result<Option<Found>> {
    let is_clean = env.files().metadata(&directory.join(CLEAN)).is_ok();
    if medium == NodeMedium::MemoryWithCopy && !is_clean && !is_enabled(Mutant::NodeTrustsUncleanCopy) {
        tracing::warn!(%life, "an earlier life answered from memory and did not end cleanly: what its disk \
            holds counts for nothing");
        return Ok(None);
    }
    remove_unfinished(env, directory, life)?;
    let mut replay = Replay { regions: Regions::new(life, u64::MAX), needed: 0, sequence: 0, damage: None };
    let numbers = files(env, directory)?;
    let (Some(first), Some(last)) = (numbers.first().copied(), numbers.last().copied()) else {
        return Ok(None);
    };
    if !numbers.iter().copied().eq(first..=last) {
        replay.damage = Some("a file is missing".to_owned());
    }
    let mut offset = 0;
    let mut next_file = numbers.first().map(|first| read(env, directory, *first)).transpose()?;
    for (index, number) in numbers.iter().copied().enumerate() {
        let Some(file) = next_file.take() else { break };
        next_file = numbers.get(index + 1).map(|next| read(env, directory, *next)).transpose()?;
        let known =
            next_file.as_ref().and_then(|next| Some(SegmentHeader::decode(next).ok()?.predecessor_end));
        if replay.damage.is_none() {
            offset = replay.file(&file, number, known, next_file.is_none());
        }
    }
    if first > replay.needed {
        replay.damage.get_or_insert_with(|| format!("files {} to {} are missing", replay.needed, first - 1));
    }
    let Replay { mut regions, needed, sequence, damage } = replay;
    if let Some(damage) = &damage {
        tracing::error!(%life, directory = %directory.display(), damage, "the journal of an earlier life is \
            damaged: it answers for regions that were sealed before");
    }
    regions.freeze(damage.is_none());
    let end = End { number: last + 1, offset, needed, sequence };
    Ok(Some(Found { directory: directory.to_owned(), regions, end, is_damaged: damage.is_some() }))
}

/// Deletes the last file when its making broke off: nothing in it ever counted.
fn remove_unfinished(env: &Env, directory: &Path, life: NodeIncarnation) -> io::Result<()> {
    let Some(last) = files(env, directory)?.last().copied() else { return Ok(()) };
    let (file, identity) = (read(env, directory, last)?, identity(life, last));
    let is_headed = SegmentHeader::decode(&file).is_ok_and(|header| header.identity == identity);
    if is_headed || greatest_durable_through(&file, header_bytes(), &identity).is_some() {
        return Ok(());
    }
    env.files().remove_file(&file_path(directory, last))?;
    env.files().sync_directory(directory)
}

fn read(env: &Env, directory: &Path, number: u32) -> io::Result<Vec<u8>> {
    let file = env.files().open(&file_path(directory, number), Access::Read)?;
    file.read_once();
    let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

struct Replay {
    regions: Regions,
    needed: u32,
    sequence: u64,
    /// The first damage; nothing after it was replayed.
    damage: Option<String>,
}

impl Replay {
    /// Replays a file, whose successor says that it ends at `known`. Gives where it ends.
    fn file(&mut self, file: &[u8], number: u32, known: Option<u64>, is_last: bool) -> u64 {
        let identity = identity(self.regions.incarnation(), number);
        let begin = identity.offset(header_bytes());
        let is_headed = SegmentHeader::decode(file).is_ok_and(|header| header.identity == identity);
        if !is_headed {
            self.damage = Some(format!("the header of file {number}"));
            return begin;
        }
        let slot = file
            .get(DURABLE_SLOT_OFFSET..SEGMENT_HEADER_BYTES)
            .and_then(|slot| decode_durable_slot(&identity, slot));
        if is_last && slot.is_some_and(|slot| slot >= identity.offset(0) + (1 << 32)) {
            self.damage = Some(format!("file {} is missing", number + 1));
        }
        let slot = slot.filter(|slot| *slot < identity.offset(0) + (1 << 32));
        let mut scanner = FrameScanner::new(file, header_bytes(), identity);
        for frame in scanner.by_ref() {
            let is_next = self.sequence == 0 || frame.header.first_sequence == self.sequence + 1;
            let damage = match decode(frame.payload) {
                Ok(message) if is_next => {
                    self.replay(message);
                    None
                }
                Ok(_) => Some(format!("frame {} of file {number} is missing", self.sequence + 1)),
                Err(error) => Some(format!("byte {} of file {number}: {error}", frame.byte)),
            };
            if damage.is_some() {
                self.damage = damage;
                return identity.offset(frame.byte);
            }
            (self.sequence, self.needed) = (frame.header.first_sequence, frame.header.stream);
        }
        let end = identity.offset(scanner.byte());
        match scanner.verdict(known.max(slot)) {
            // A file that has a successor was full and durable up to where that says.
            Verdict::Tail { .. } if is_last || known == Some(end) => {}
            Verdict::Tail { byte } | Verdict::Damaged { byte, .. } | Verdict::Newer { byte, .. } => {
                self.damage = Some(format!("byte {byte} of file {number}"));
            }
        }
        end
    }

    fn replay(&mut self, message: Message) {
        if let Message::Request(request) = message {
            // Requests refused then are not in the journal; one refused now (a copy of bytes
            // held already) changes nothing.
            self.regions.replay(request);
        }
    }
}

fn decode(payload: &[u8]) -> FormatResult<Message> {
    let mut reader = Reader::new(payload);
    let kind = Kind::decode(u16::try_from(reader.u64()?).unwrap_or(u16::MAX))?;
    Message::decode(kind, &payload[KIND_BYTES..])
}

/// Takes a directory for this node alone.
///
/// # Errors
/// `Busy` when another node has it; what the disk says.
pub(crate) fn take(env: &Env, root: &Path) -> Result<std::sync::Arc<dyn tombolo_env::File>> {
    let path = root.join("lock");
    let failed = |error| Error::io(error, "taking a node's disk", root.display());
    env.files().create_directories(root).map_err(failed)?;
    let file = match env.files().create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            env.files().open(&path, Access::ReadWrite)
        }
        file => file,
    };
    let file = file.map_err(failed)?;
    if file.try_lock().map_err(failed)? {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::Busy, format!("another node has the directory {}", root.display()))
        .advice("end that node, or give this one a directory of its own"))
}
