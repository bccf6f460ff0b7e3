//! Which kind of file a name is of.

/// How the bytes of a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// In a row of the database; an object once it has grown beyond a row.
    Record,
    /// In the lane of write-ahead logs.
    Log,
    /// In the lane of manifests, which are copied into an object from 4 MiB on.
    Manifest,
    /// In objects.
    Object,
}

impl FileKind {
    /// All of them.
    pub const ALL: [FileKind; 4] = [FileKind::Record, FileKind::Log, FileKind::Manifest, FileKind::Object];

    /// By the last part of a path: `.sst` and `.blob` are objects, `.log` a log, `MANIFEST-` a
    /// manifest, the rest records.
    ///
    /// ```
    /// use tombolo_files::kind::FileKind;
    ///
    /// assert_eq!(FileKind::of(b"/db/000012.sst"), FileKind::Object);
    /// assert_eq!(FileKind::of(b"/db/000011.log"), FileKind::Log);
    /// assert_eq!(FileKind::of(b"/db/CURRENT"), FileKind::Record);
    /// ```
    pub fn of(path: &[u8]) -> FileKind {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match name {
            _ if name.ends_with(b".sst") || name.ends_with(b".blob") => FileKind::Object,
            _ if name.ends_with(b".log") => FileKind::Log,
            _ if name.starts_with(b"MANIFEST-") => FileKind::Manifest,
            _ => FileKind::Record,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::Record => "records",
            FileKind::Log => "logs",
            FileKind::Manifest => "manifests",
            FileKind::Object => "objects",
        }
    }

    /// The lane that holds it, if one does.
    pub(crate) const fn lane(self) -> Option<usize> {
        match self {
            FileKind::Log => Some(0),
            FileKind::Manifest => Some(1),
            FileKind::Record | FileKind::Object => None,
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            FileKind::Record => 0,
            FileKind::Log => 1,
            FileKind::Manifest => 2,
            FileKind::Object => 3,
        }
    }

    pub(crate) fn of_index(index: u8) -> Option<FileKind> {
        FileKind::ALL.get(usize::from(index)).copied()
    }
}
