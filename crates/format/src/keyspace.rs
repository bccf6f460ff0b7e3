//! A keyspace's name and options, as batches and the manifest have them.

use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};
use crate::key::check_entry_features;

/// Most bytes of a keyspace's name.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Most options of a keyspace.
pub const KEYSPACE_OPTIONS_MAX: u32 = 256;
/// Most bytes of the name or value of an option.
pub const KEYSPACE_OPTION_BYTES_MAX: usize = 4096;

/// Feature bit of a keyspace that keeps its last level for tables that are ingested behind: an
/// older version would let deletes go that hide those.
pub const KEYSPACE_FEATURE_BEHIND: u64 = 1 << 16;

/// Options of a keyspace that shape its bytes. Settings are kept as name and value: those that a
/// version does not know it ignores, and keeps as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// Incompatible feature bits: of settings that nobody may ignore, and of the kinds of entries
    /// that its tables and its log may hold
    /// ([`EntryKind::feature`](crate::key::EntryKind::feature)).
    pub features: u64,
    /// By name.
    pub settings: Vec<(String, String)>,
}

impl KeyspaceOptions {
    /// Of these settings, which every version may read.
    pub fn of(settings: impl IntoIterator<Item = (String, String)>) -> KeyspaceOptions {
        KeyspaceOptions { features: 0, settings: settings.into_iter().collect() }
    }
}

/// Appends keyspace options: see the table of [`crate::batch`].
pub(crate) fn put_options(out: &mut Vec<u8>, options: &KeyspaceOptions) -> Result<()> {
    let count = u32::try_from(options.settings.len()).unwrap_or(u32::MAX);
    if count > KEYSPACE_OPTIONS_MAX {
        return Err(FormatError::limit(format!(
            "{count} options of a keyspace; at most {KEYSPACE_OPTIONS_MAX}"
        )));
    }
    if let Some((name, _)) =
        options.settings.iter().find(|(name, value)| name.len().max(value.len()) > KEYSPACE_OPTION_BYTES_MAX)
    {
        let start: String = name.chars().take(40).collect();
        return Err(FormatError::limit(format!(
            "option {start:?} is longer than {KEYSPACE_OPTION_BYTES_MAX} bytes"
        )));
    }
    out.extend_from_slice(&options.features.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    for (name, value) in &options.settings {
        put_prefixed(out, name.as_bytes());
        put_prefixed(out, value.as_bytes());
    }
    Ok(())
}

/// Reads what [`put_options`] wrote.
pub(crate) fn read_options(reader: &mut Reader<'_>) -> Result<KeyspaceOptions> {
    let at = reader.position();
    let features = reader.u64()?;
    check_entry_features(at, features & !KEYSPACE_FEATURE_BEHIND)?;
    let at = reader.position();
    let count = reader.u32()?;
    if count > KEYSPACE_OPTIONS_MAX {
        return Err(FormatError::damaged(
            at,
            format!("at most {KEYSPACE_OPTIONS_MAX} options"),
            count.to_string(),
        ));
    }
    let mut settings = Vec::new();
    for _ in 0..count {
        let name = reader.text(KEYSPACE_OPTION_BYTES_MAX)?.to_owned();
        let value = reader.text(KEYSPACE_OPTION_BYTES_MAX)?.to_owned();
        settings.push((name, value));
    }
    Ok(KeyspaceOptions { features, settings })
}
