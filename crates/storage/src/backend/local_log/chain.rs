//! Which segments make a lane, and how far each counts: the chain of predecessors, read back from
//! the disk.
//!
//! Every begun segment says where the lane left the one before. From the newest one back to the
//! replay point this gives the chain; a segment that is not on it was given up after a failed sync,
//! or is older than the replay point.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::file::read_exact_at;
use tombolo_env::memory::Buffer;
use tombolo_env::{Access, Env, File};
use tombolo_format::FormatError;
use tombolo_format::log_frame::{
    DURABLE_SLOT_BYTES, DURABLE_SLOT_OFFSET, Frame, NoFrame, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentIdentity, decode_durable_slot, decode_frame,
};

use super::segment::{FIRST_BYTE, segment_number};
use crate::mutant::{Mutant, is_enabled};
use crate::{Error, LogOffset, Result};

/// A segment whose header is valid and its own.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) identity: SegmentIdentity,
    pub(super) path: PathBuf,
    pub(super) capacity: u32,
    pub(super) predecessor: LogOffset,
    /// What its header knows of the lane's durable end.
    pub(super) durable_through: Option<LogOffset>,
}

/// A segment on the chain and how far it counts.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) segment: Begun,
    /// The first frame that is asked for.
    pub(super) start: u32,
    /// Where the lane goes over into the next; `None` in the last.
    pub(super) bound: Option<u32>,
}

/// All begun segments of a lane's directory, ascending.
///
/// # Errors
/// `Corrupt` for a segment that is cut, or is another log's; `Unsupported` for a newer format.
pub(super) fn survey(env: &Env, directory: &Path, lane: SegmentIdentity) -> Result<Vec<Begun>> {
    let entries = env
        .files()
        .list_atomically(directory)
        .map_err(|error| Error::io(error, "listing a log", directory.display()))?;
    let mut begun = Vec::new();
    for entry in entries {
        if let Some(number) = segment_number(&entry.name)
            && let Some(segment) =
                look(env, &directory.join(&entry.name), SegmentIdentity { segment: number, ..lane })?
        {
            begun.push(segment);
        }
    }
    begun.sort_by_key(|segment| segment.identity.segment);
    Ok(begun)
}

/// Reads one header; `None` when the segment is not begun.
fn look(env: &Env, path: &Path, identity: SegmentIdentity) -> Result<Option<Begun>> {
    let failed = |error| Error::io(error, "reading a log segment", path.display());
    let file = match env.files().open(path, Access::Read) {
        // Recycled or retired by its writer since the list.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut page = [0; SEGMENT_HEADER_BYTES];
    match read_exact_at(&*file, &mut page, 0) {
        // Being made: it gets its length before its header.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(failed)?,
    }
    let header = match SegmentHeader::decode(&page) {
        Ok(header) => header,
        Err(FormatError::Damaged { .. }) => return Ok(None),
        Err(error) => return Err(Error::format(path.display(), 0, error)),
    };
    let found = header.identity;
    if (SegmentIdentity { segment: identity.segment, ..found }) != identity {
        return Err(Error::corrupt(path.display(), 32, format!("{identity:?}"), format!("{found:?}")));
    }
    if found.segment != identity.segment {
        return Ok(None);
    }
    let length = file.length().map_err(failed)?;
    if length < header.capacity {
        return Err(Error::corrupt(
            path.display(),
            length,
            format!("a segment of {} bytes", header.capacity),
            format!("{length} bytes"),
        ));
    }
    Ok(Some(Begun {
        identity,
        path: path.to_path_buf(),
        capacity: u32::try_from(header.capacity).unwrap_or(u32::MAX),
        predecessor: LogOffset(header.predecessor_end),
        durable_through: decode_durable_slot(&identity, &page[DURABLE_SLOT_OFFSET..][..DURABLE_SLOT_BYTES])
            .map(LogOffset),
    }))
}

/// The chain that ends in segment `last`, from `from` on; `None` when a link is missing.
pub(super) fn link(begun: &[Begun], last: u32, from: LogOffset) -> Option<Vec<Piece>> {
    let find = |number: u32| {
        begun
            .binary_search_by_key(&number, |segment| segment.identity.segment)
            .ok()
            .map(|index| &begun[index])
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let mut segment = find(last)?;
    let mut bound = None;
    loop {
        let start =
            if from.segment() == segment.identity.segment { from.byte().max(FIRST_BYTE) } else { FIRST_BYTE };
        let start = bound.map_or(start, |bound: u32| start.min(bound));
        pieces.push(Piece { segment: segment.clone(), start, bound });
        let before = segment.predecessor;
        if before <= from {
            pieces.reverse();
            return Some(pieces);
        }
        // Predecessors have lower numbers, so this ends.
        if before.segment() >= segment.identity.segment {
            return None;
        }
        bound = Some(before.byte());
        segment = find(before.segment())?;
    }
}

/// A segment's bytes up to `end`, from its byte 0; what lies before `start` is not read. The file
/// is opened for writing only where `access` says so: to be made durable.
pub(super) fn load(
    env: &Env,
    segment: &Begun,
    (start, end): (u32, u32),
    access: Access,
) -> Result<(Arc<dyn File>, Buffer)> {
    let failed = |error| Error::io(error, "reading a log segment", segment.path.display());
    let file = env.files().open(&segment.path, access).map_err(failed)?;
    if end > segment.capacity {
        return Err(Error::corrupt(
            segment.path.display(),
            u64::from(segment.capacity),
            format!("bytes up to {end}"),
            "the segment's end",
        ));
    }
    let mut bytes = Buffer::zeroed(end as usize).map_err(failed)?;
    let start = (start as usize).min(bytes.len());
    match read_exact_at(&*file, &mut bytes[start..], start as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let length = file.length().unwrap_or(0);
            Err(Error::corrupt(
                segment.path.display(),
                length,
                format!("a segment of {} bytes", segment.capacity),
                format!("{length} bytes"),
            ))
        }
        read => read.map_err(failed).map(|()| (file, bytes)),
    }
}

/// The frame at `byte`.
pub(super) fn frame_at<'a>(
    bytes: &'a [u8],
    byte: u32,
    identity: &SegmentIdentity,
) -> std::result::Result<Frame<'a>, NoFrame> {
    match decode_frame(bytes, byte, identity) {
        Err(no) if is_enabled(Mutant::LogAcceptsForeignFrames) => {
            let earlier = (0..identity.segment).map(|segment| SegmentIdentity { segment, ..*identity });
            earlier.filter_map(|earlier| decode_frame(bytes, byte, &earlier).ok()).next().ok_or(no)
        }
        result => result,
    }
}

/// The error of a place that must hold a frame and does not.
pub(super) fn no_frame(reason: NoFrame, byte: u32, path: &Path) -> Error {
    Error::format(path.display(), 0, reason.into_error(byte))
}
