//! `tombolo://?store=…&log=…&takeover=…`: which database, and how it is taken.
//!
//! | parameter | meaning |
//! |---|---|
//! | `store` | URI of the store; the only one that must be there |
//! | `log` | URI of the log; the store's own without it |
//! | `takeover` | `refuse` (the default): a lock is refused while another process gives signs of life; `always`: it is taken |
//! | `claim` | `lock` (the default): taking the lock of a database claims the files; `change`: the first change of a file does, and the claim stays until the process ends |
//! | `info_log` | directory of this host for RocksDB's information log; `tombolo-rocksdb` among the temporary files without it |
//! | `set` | settings of the database, `name:value` separated by commas |
//! | `lane_memory_bytes` | bytes of logs in memory beyond which they are copied into objects; 256 MiB |
//!
//! `%` and two hexadecimal digits stand for a byte: a URI within this one writes `&` as `%26`.

use std::path::PathBuf;

use tombolo::{Error, ErrorKind, Options, Result, TakeOver};
use tombolo_files::FilesOptions;
use tombolo_files::door::Claim;

/// Memory of the database below: rows of names, and what its logs hold until it is durable.
const MEMORY_BYTES: u64 = 256 << 20;

const SCHEME: &str = "tombolo://";
const PARAMETERS: &str = "store, log, takeover, claim, info_log, set, lane_memory_bytes";

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) store: String,
    pub(crate) log: Option<String>,
    pub(crate) take_over: TakeOver,
    pub(crate) claim: Claim,
    pub(crate) options: Options,
    pub(crate) files: FilesOptions,
    pub(crate) info_directory: PathBuf,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what.into())
        .advice("write tombolo://?store=URI, and further parameters behind a &")
}

impl Settings {
    /// # Errors
    /// `Invalid`.
    pub(crate) fn parse(uri: &[u8]) -> Result<Settings> {
        let uri = std::str::from_utf8(uri).map_err(|_| wrong("a URI that is not UTF-8"))?;
        let parameters = uri
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.trim_start_matches('/').strip_prefix('?'))
            .ok_or_else(|| wrong(format!("{uri:?} has no parameters")))?;
        let (mut store, mut log, mut info, mut take_over) = (None, None, None, TakeOver::Never);
        let mut claim = Claim::default();
        let mut options = Options { memory_bytes: MEMORY_BYTES, ..Options::default() };
        let mut files = FilesOptions::default();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) =
                parameter.split_once('=').ok_or_else(|| wrong(format!("{parameter:?} has no value")))?;
            let value = decoded(value)?;
            match name {
                "store" => store = Some(value),
                "log" => log = Some(value),
                "info_log" => info = Some(PathBuf::from(value)),
                "takeover" => {
                    take_over = match value.as_str() {
                        "refuse" => TakeOver::Never,
                        "always" => TakeOver::Always,
                        _ => {
                            return Err(wrong(format!("takeover is {value:?}; refuse and always are known")));
                        }
                    }
                }
                "claim" => {
                    claim = match value.as_str() {
                        "lock" => Claim::WithLock,
                        "change" => Claim::WithChange,
                        _ => return Err(wrong(format!("claim is {value:?}; lock and change are known"))),
                    }
                }
                "set" => {
                    for setting in value.split(',').filter(|setting| !setting.is_empty()) {
                        let (name, value) = setting
                            .split_once(':')
                            .ok_or_else(|| wrong(format!("the setting {setting:?} has no value")))?;
                        options.set(name, value)?;
                    }
                }
                "lane_memory_bytes" => {
                    files.lane_memory_bytes = value
                        .parse()
                        .map_err(|_| wrong(format!("lane_memory_bytes is {value:?}, and no number")))?;
                }
                _ => {
                    return Err(wrong(format!("the parameter {name:?} is unknown")).expected(PARAMETERS));
                }
            }
        }
        let info_directory = match info {
            Some(info) if info.is_absolute() => info,
            Some(_) => return Err(wrong("info_log is no absolute path")),
            None => std::env::temp_dir().join("tombolo-rocksdb"),
        };
        let store = store.ok_or_else(|| wrong("the URI names no store"))?;
        Ok(Settings { store, log, take_over, claim, options, files, info_directory })
    }
}

fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| wrong(format!("a % without two digits in {text:?}")))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong(format!("{text:?} is not UTF-8")))
}
