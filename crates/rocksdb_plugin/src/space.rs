//! Room that a store has left, as far as anybody knows.

use std::path::Path;

use tombolo::{Env, Error, ErrorKind, Result, Uri};

/// What a store has that has no end: RocksDB computes with it, and must not overflow.
pub(crate) const UNBOUNDED_BYTES: u64 = 1 << 60;

/// Bytes that are free in the store of this URI. Of a directory those of its disk; a store of
/// objects has no end that it tells.
///
/// # Errors
/// `Invalid` for no URI; those of the disk.
pub(crate) fn free_space(env: &Env, store: &str) -> Result<u64> {
    let uri = Uri::parse(store)?;
    if uri.scheme != "file" {
        return Ok(UNBOUNDED_BYTES);
    }
    // It is made with the database: until then its disk is that of what it will lie in.
    let mut path = Path::new(&uri.rest);
    loop {
        match (env.files().space(path), path.parent()) {
            (Ok(space), _) => return Ok(space.available),
            (Err(error), Some(parent)) if error.kind() == std::io::ErrorKind::NotFound => path = parent,
            (Err(error), _) => {
                return Err(Error::new(ErrorKind::Retry, "the free space of a disk cannot be had")
                    .object(path.display())
                    .found(error));
            }
        }
    }
}
