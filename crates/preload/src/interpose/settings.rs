//! What the environment says: which files, which database.

use std::ffi::OsString;
use std::path::PathBuf;

use tombolo::Options;

use super::patterns::Patterns;
use super::resolved::resolved;

/// The database's store, as a URI.
pub const STORE: &str = "TOMBOLO_PRELOAD_STORE";
/// The database's log, as a URI; the store's own when it is not there.
pub const LOG: &str = "TOMBOLO_PRELOAD_LOG";
/// Patterns of the files, separated by colons.
pub const FILES: &str = "TOMBOLO_PRELOAD_FILES";
/// Bytes of memory that the files' contents may take, 1 GiB when it is not there.
pub const FILE_MEMORY_BYTES: &str = "TOMBOLO_PRELOAD_FILE_MEMORY_BYTES";
/// Settings of the database, `name=value` separated by commas.
pub const SET: &str = "TOMBOLO_PRELOAD_SET";

const FILE_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// URI of the store.
    pub store: String,
    /// URI of the log.
    pub log: Option<String>,
    /// Which files.
    pub patterns: Patterns,
    /// Bytes of memory for their contents.
    pub file_memory_bytes: u64,
    /// Of the database.
    pub options: Options,
}

impl Settings {
    /// # Errors
    /// The missing or wrong setting, for the person who started the program.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings, String> {
        let text = |name: &str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(format!("{name} is not UTF-8")),
        };
        let store = text(STORE)?.ok_or_else(|| {
            format!("{STORE} is not set: say where the database is, as file:///var/lib/files")
        })?;
        let log = text(LOG)?;
        let files = variable(FILES)
            .ok_or_else(|| format!("{FILES} is not set: say which files, as /var/lib/app/*.db"))?;
        let excluded = [Some(&store), log.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|uri| local_directory(uri))
            .collect();
        let patterns = Patterns::parse(&files, excluded)
            .map_err(|error| format!("{FILES}: {error}"))?
            .resolved(resolved);
        let file_memory_bytes = match text(FILE_MEMORY_BYTES)? {
            None => FILE_MEMORY_BYTES_DEFAULT,
            Some(bytes) => bytes
                .parse()
                .map_err(|_| format!("{FILE_MEMORY_BYTES} is {bytes:?}, and no number of bytes"))?,
        };
        let set = text(SET)?.unwrap_or_default();
        let options = Options::parse(set.split(',').filter(|pair| !pair.is_empty()))
            .map_err(|error| format!("{SET}: {error}"))?;
        Ok(Settings { store, log, patterns, file_memory_bytes, options })
    }
}

/// The directory of a `file://` URI. The engine's own calls on what lies there must not come back
/// to it.
fn local_directory(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = PathBuf::from(rest.split('?').next()?);
    Some(resolved(&path).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let whole =
            [(STORE, "mem://x"), (FILES, "/a/*"), (SET, "memory_bytes=4194304,automatic_compaction=false")];
        let settings = read(&whole).unwrap();
        assert_eq!(settings.options.memory_bytes, 4 << 20);
        assert_eq!(settings.file_memory_bytes, FILE_MEMORY_BYTES_DEFAULT);
        assert!(read(&whole[..1]).unwrap_err().contains(FILES));
        assert!(read(&whole[1..]).unwrap_err().contains(STORE));
        assert!(read(&[whole[0], whole[1], (SET, "colour=red")]).unwrap_err().contains("colour"));
        assert!(read(&[whole[0], whole[1], (FILE_MEMORY_BYTES, "much")]).unwrap_err().contains("much"));
    }
}
