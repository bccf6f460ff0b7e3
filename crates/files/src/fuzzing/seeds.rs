//! One sound input of each kind, for fuzzing to begin with.

use tombolo::ApplicationObject;

use crate::kind::FileKind;
use crate::rows::{self, Entry, Inode, Part, Tag};

/// Inputs, with the target that each is for.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    let tag = Tag { epoch: 3, number: 4 };
    let part = Part { object: ApplicationObject::from_parts(5, 6), bytes: 7 };
    let row = |kind, tag, parts, record: &[u8]| {
        Inode { kind, modified_ms: 8, tag, parts, record: record.to_vec() }.encode()
    };
    let inputs = [
        row(FileKind::Record, Tag::default(), Vec::new(), b"MANIFEST-000004\n"),
        row(FileKind::Log, tag, vec![part.clone(), part.clone()], b""),
        row(FileKind::Object, Tag::default(), vec![part], b""),
        Entry::Append { tag, at: 9, bytes: b"bytes of a log" }.encode(),
        Entry::Cut { tag, at: 9 }.encode(),
        rows::name_value(Some(10)).to_vec(),
        rows::name_value(None).to_vec(),
        rows::inode_key(11).to_vec(),
        b"//db/./000012.sst".to_vec(),
    ];
    inputs.into_iter().map(|input| ("named_files", input)).collect()
}
