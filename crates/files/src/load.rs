//! Reading what the database holds of files: their rows, and the lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tombolo::{Db, Error, ErrorKind, Keyspace, Result};

use crate::catalog::{Catalog, Node};
use crate::content::{Counted, File, Growing, LaneTail, State, Tail};
use crate::kind::FileKind;
use crate::rows::{self, Entry, Inode, Tag};

/// Names with their files, and of each lane the epochs that left something in it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) catalog: Catalog,
    pub(crate) epochs: [usize; 2],
    /// Those of all files in the lanes.
    pub(crate) tags: BTreeSet<Tag>,
}

/// How many logs hold lanes: one for logs, one for manifests.
pub(crate) const LANES: u32 = 2;

/// What a lane was found to hold of a file.
#[derive(Debug, Default)]
struct Found {
    base: u64,
    bytes: Vec<u8>,
    is_of_earlier: bool,
}

/// Reads all rows and lanes. The lanes of a following handle go on while they are read; what it
/// lacks of them ends with `Retry`.
///
/// # Errors
/// `Corrupt`, `Unsupported`; those of the database.
pub(crate) async fn load(db: &Db, memory: &Arc<AtomicU64>, follows: bool) -> Result<Loaded> {
    let (names, inodes) = match (db.keyspace(rows::NAMES), db.keyspace(rows::INODES)) {
        (Ok(names), Ok(inodes)) => (names, inodes),
        (Err(error), _) | (_, Err(error)) if follows && error.kind() == ErrorKind::NotFound => {
            return Ok(Loaded {
                catalog: Catalog { next: 1, ..Catalog::default() },
                epochs: [0; 2],
                tags: BTreeSet::new(),
            });
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let (nodes, mut inodes) = read_rows(db, &names, &inodes).await?;
    let mut found: BTreeMap<Tag, Found> = BTreeMap::new();
    for (number, inode) in inodes.iter().filter(|(_, inode)| inode.kind.lane().is_some()) {
        let base = inode.parts.iter().map(|part| part.bytes).sum();
        if found.insert(inode.tag, Found { base, ..Found::default() }).is_some() {
            return Err(Error::new(ErrorKind::Corrupt, "two files have one tag in the lanes")
                .object(format!("file {number}")));
        }
    }
    let tags = found.keys().copied().collect();
    let mut epochs = [0; 2];
    for (lane, epochs) in (0..LANES).zip(&mut epochs) {
        *epochs = read_lane(db, lane, &mut found, follows).await?;
    }
    let next = inodes.keys().next_back().map_or(1, |last| last + 1);
    let mut catalog = Catalog { nodes: BTreeMap::new(), next };
    let mut files: BTreeMap<u64, Arc<File>> = BTreeMap::new();
    for (path, number) in nodes {
        let Some(number) = number else {
            catalog.nodes.insert(path, Node::Directory);
            continue;
        };
        let file = match (files.get(&number), inodes.remove(&number)) {
            (Some(file), _) => Arc::clone(file),
            (None, Some(inode)) => {
                let held = found.remove(&inode.tag).unwrap_or_default();
                let file = Arc::new(file_of(number, inode, held, memory));
                files.insert(number, Arc::clone(&file));
                file
            }
            (None, None) => {
                return Err(Error::new(ErrorKind::Corrupt, "a name leads to a file that has no row")
                    .object(path.escape_ascii())
                    .found(format!("file {number}")));
            }
        };
        file.state.lock().links += 1;
        catalog.nodes.insert(path, Node::File(file));
    }
    Ok(Loaded { catalog, epochs, tags })
}

/// Whether the rows still have all of these tags: then the lanes had all of their entries when they
/// were read before.
///
/// # Errors
/// `Retry` if not; those of the database.
pub(crate) async fn check_still_there(db: &Db, tags: &BTreeSet<Tag>) -> Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    let (_, inodes) = read_rows(db, &db.keyspace(rows::NAMES)?, &db.keyspace(rows::INODES)?).await?;
    let held: BTreeSet<Tag> = inodes.values().map(|inode| inode.tag).collect();
    if tags.is_subset(&held) { Ok(()) } else { Err(behind()) }
}

type Rows = (BTreeMap<Vec<u8>, Option<u64>>, BTreeMap<u64, Inode>);

async fn read_rows(db: &Db, names: &Keyspace, inodes: &Keyspace) -> Result<Rows> {
    let snapshot = db.snapshot();
    let (mut nodes, mut files) = (BTreeMap::new(), BTreeMap::new());
    let mut cursor = snapshot.cursor::<&[u8]>(names, ..);
    while cursor.next_async().await? {
        nodes.insert(cursor.key().to_vec(), rows::name(cursor.key(), cursor.value())?);
    }
    let mut cursor = snapshot.cursor::<&[u8]>(inodes, ..);
    while cursor.next_async().await? {
        files.insert(rows::inode_number(cursor.key())?, Inode::decode(cursor.key(), cursor.value())?);
    }
    Ok((nodes, files))
}

/// Folds the entries of a lane; says how many epochs have left some.
async fn read_lane(db: &Db, lane: u32, found: &mut BTreeMap<Tag, Found>, follows: bool) -> Result<usize> {
    let mut earlier = db.application_log(lane)?.earlier();
    let mut epochs = BTreeSet::new();
    loop {
        let entry = match earlier.next_async().await {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(epochs.len()),
            // Its writer may have trimmed or released it since.
            Err(error) if follows && error.kind() != ErrorKind::Unsupported => {
                return Err(behind().source(error));
            }
            Err(error) => return Err(error),
        };
        epochs.insert(entry.end.epoch());
        let decoded = Entry::decode(&entry.payload)?;
        let Some(file) = found.get_mut(&decoded.tag()) else { continue };
        file.is_of_earlier = true;
        let (at, held) = match decoded {
            Entry::Append { at, .. } => (at, file.base + file.bytes.len() as u64),
            Entry::Cut { at, .. } => (at, at.clamp(file.base, file.base + file.bytes.len() as u64)),
        };
        if at != held {
            if follows {
                return Err(behind());
            }
            return Err(Error::new(ErrorKind::Corrupt, "a lane lacks a piece of a file")
                .object(format!("lane {lane} of epoch {}", entry.end.epoch()))
                .expected(format!("an entry at byte {held} of the file"))
                .found(format!("one at byte {at}")));
        }
        match decoded {
            Entry::Append { bytes, .. } => file.bytes.extend_from_slice(bytes),
            Entry::Cut { at, .. } => {
                file.bytes.truncate(usize::try_from(at - file.base).unwrap_or(usize::MAX));
            }
        }
    }
}

fn behind() -> Error {
    Error::new(ErrorKind::Retry, "the files were changed while they were looked at").advice("look again")
}

fn file_of(number: u64, inode: Inode, held: Found, memory: &Arc<AtomicU64>) -> File {
    let tail = match inode.kind {
        FileKind::Log | FileKind::Manifest => Tail::Lane(LaneTail {
            tag: inode.tag,
            bytes: Counted::new(held.bytes, memory),
            pending: std::collections::VecDeque::new(),
            place: None,
            is_of_earlier: held.is_of_earlier,
        }),
        FileKind::Record if inode.parts.is_empty() => Tail::Record { bytes: inode.record, is_dirty: false },
        FileKind::Record | FileKind::Object => Tail::Object(Growing::No),
    };
    let state = State::new(0, inode.parts, inode.modified_ms, tail);
    File::new(number, inode.kind, state)
}
