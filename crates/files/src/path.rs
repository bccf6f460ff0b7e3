//! Paths, as they are kept: absolute, without empty parts, `.` and `..`.

use tombolo::{Error, ErrorKind, Result};

/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4095;

/// The path as it is kept; one that does not begin with a slash begins at the root.
///
/// ```
/// use tombolo_files::path::normal;
///
/// assert_eq!(normal(b"//db/./x/")?, b"/db/x");
/// assert_eq!(normal(b"db")?, b"/db");
/// assert!(normal(b"/db/../x").is_err());
/// # tombolo::Result::Ok(())
/// ```
///
/// # Errors
/// `Invalid` for one that is empty or too long, that goes up, or has a zero byte.
pub fn normal(path: &[u8]) -> Result<Vec<u8>> {
    let wrong = |what: &str| {
        Err(Error::new(ErrorKind::Invalid, format!("{what}: {}", path.escape_ascii()))
            .advice("name a file by its path from the root of the files"))
    };
    if path.is_empty() {
        return wrong("an empty path");
    }
    let mut normal = Vec::with_capacity(path.len() + 1);
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return wrong("a path that goes up"),
            part if part.contains(&0) => return wrong("a path with a zero byte"),
            part => {
                normal.push(b'/');
                normal.extend_from_slice(part);
            }
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    if normal.len() > PATH_BYTES_MAX {
        return wrong("a path that is too long");
    }
    Ok(normal)
}

/// The directory that a kept path lies in; `None` of the root.
pub(crate) fn parent(path: &[u8]) -> Option<&[u8]> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    match at {
        0 if path.len() == 1 => None,
        0 => Some(&path[..1]),
        at => Some(&path[..at]),
    }
}

/// What every path within a directory begins with.
pub(crate) fn within(directory: &[u8]) -> Vec<u8> {
    let mut prefix = directory.to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}
