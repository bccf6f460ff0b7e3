//! A keyspace's name and options, as batches and the manifest have them.

use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};

/// Most bytes of a keyspace's name.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Most options of a keyspace.
pub const KEYSPACE_OPTIONS_MAX: u32 = 256;
/// Most bytes of the name or value of an option.
pub const KEYSPACE_OPTION_BYTES_MAX: usize = 4096;

/// Options of a keyspace that shape its bytes, kept as name and value so that old readers can name
/// what they do not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions(pub Vec<(String, String)>);

/// Appends keyspace options: count (u32), then name and value of each with its length before it.
pub(crate) fn put_options(out: &mut Vec<u8>, options: &KeyspaceOptions) -> Result<()> {
    let count = u32::try_from(options.0.len()).unwrap_or(u32::MAX);
    if count > KEYSPACE_OPTIONS_MAX {
        return Err(FormatError::limit(format!(
            "{count} options of a keyspace; at most {KEYSPACE_OPTIONS_MAX}"
        )));
    }
    if let Some((name, _)) =
        options.0.iter().find(|(name, value)| name.len().max(value.len()) > KEYSPACE_OPTION_BYTES_MAX)
    {
        let start: String = name.chars().take(40).collect();
        return Err(FormatError::limit(format!(
            "option {start:?} is longer than {KEYSPACE_OPTION_BYTES_MAX} bytes"
        )));
    }
    out.extend_from_slice(&count.to_le_bytes());
    for (name, value) in &options.0 {
        put_prefixed(out, name.as_bytes());
        put_prefixed(out, value.as_bytes());
    }
    Ok(())
}

/// Reads what [`put_options`] wrote.
pub(crate) fn read_options(reader: &mut Reader<'_>) -> Result<KeyspaceOptions> {
    let at = reader.position();
    let count = reader.u32()?;
    if count > KEYSPACE_OPTIONS_MAX {
        return Err(FormatError::damaged(
            at,
            format!("at most {KEYSPACE_OPTIONS_MAX} options"),
            count.to_string(),
        ));
    }
    let mut options = Vec::new();
    for _ in 0..count {
        let name = reader.text(KEYSPACE_OPTION_BYTES_MAX)?.to_owned();
        let value = reader.text(KEYSPACE_OPTION_BYTES_MAX)?.to_owned();
        options.push((name, value));
    }
    Ok(KeyspaceOptions(options))
}
