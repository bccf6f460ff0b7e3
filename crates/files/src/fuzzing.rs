//! Entry functions of the fuzz targets, as those of `tombolo_format::fuzzing`: each takes any
//! bytes, decodes them and uses what came out.

use crate::path;
use crate::rows::{self, Entry, Inode};

pub mod seeds;

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 1] = [("named_files", named_files)];

/// Rows of names and of files, entries of lanes, and paths: what decodes must encode to the same
/// bytes, and a path that is normal stays as it is.
///
/// # Panics
/// When it does not.
pub fn named_files(bytes: &[u8]) {
    if let Ok(inode) = Inode::decode(&[0; 8], bytes) {
        assert_eq!(inode.encode(), bytes);
    }
    if let Ok(entry) = Entry::decode(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(number) = rows::name(b"/a", bytes) {
        assert_eq!(rows::name_value(number), bytes);
    }
    if let Ok(number) = rows::inode_number(bytes) {
        assert_eq!(rows::inode_key(number), bytes);
    }
    if let Ok(kept) = path::normal(bytes) {
        assert_eq!(path::normal(&kept).ok(), Some(kept));
    }
}
