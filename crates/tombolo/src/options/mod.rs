//! The settings of a database and of a keyspace. Few: the rest follows from the memory budget.

use std::path::PathBuf;
use std::time::Duration;

use tombolo_format::expiry::EXPIRY_MS_MAX;
use tombolo_format::key::{
    ENTRY_FEATURES_APART, ENTRY_FEATURES_OF_KEYSPACES, ENTRY_FEATURES_OPERANDS, VALUE_BYTES_MAX,
};
use tombolo_format::keyspace::{KEYSPACE_FEATURE_BEHIND, KEYSPACE_OPTION_BYTES_MAX};
use tombolo_format::manifest;
use tombolo_storage::duration::{parse_duration, show_duration};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::size::{SIZE_WANTED, parse_size};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use crate::filter::FilterName;
use crate::operator::OperatorName;
pub(crate) use live::LiveOptions;
pub(crate) use transaction::check_transaction_id;
pub use transaction::{Isolation, Locking, TransactionOptions};

mod live;
#[cfg(test)]
mod tests;
mod transaction;

/// What a write must survive before it is acknowledged. `tombolo explain URI` says what each means
/// on a pair of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// In memory only, until a flush: lost with the process. No log append.
    Unlogged,
    /// In the log, not synced: survives the process where the log can.
    Accepted,
    /// Survives the log's stated failure model. The default.
    #[default]
    Durable,
}

/// Whether opening may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OpenMode {
    /// The database must not exist.
    Create,
    /// The database must exist.
    Open,
    /// Either.
    #[default]
    CreateOrOpen,
}

/// From whom opening may take a database. A process that is taken over loses nothing: it learns at
/// its next write that it is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TakeOver {
    /// Opens only if nobody lives who has the database open, else ends with `InUse`. Whether
    /// somebody lives is answered at once by a clean close, and where the operating system knows
    /// the process; else it takes up to [`Presence::WAIT_MAX`](crate::Presence::WAIT_MAX).
    Never,
    /// Takes it from other processes, as a process does that another was started to replace. What
    /// this process has open itself is refused with `InUse`.
    #[default]
    FromOthers,
    /// Takes it from the writer of this epoch and from no later one: of a writer that was found
    /// dead (see [`Builder::presence`](crate::Builder::presence)), or was told to go.
    FromEpoch(Epoch),
    /// Takes it from anybody, this process included.
    Always,
}

/// Where compactions run. Flushes never leave the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CompactionPlace {
    /// In the writer's process. The default.
    #[default]
    Local,
    /// On workers alone ([`crate::Builder::compaction_workers`]). Without one that can, compaction
    /// waits, and writers are slowed in the end.
    Remote,
    /// On workers, and in the writer's process where none can.
    RemoteOrLocal,
}

impl CompactionPlace {
    const ALL: [CompactionPlace; 3] =
        [CompactionPlace::Local, CompactionPlace::Remote, CompactionPlace::RemoteOrLocal];

    /// Its name in settings.
    fn name(self) -> &'static str {
        match self {
            CompactionPlace::Local => "local",
            CompactionPlace::Remote => "remote",
            CompactionPlace::RemoteOrLocal => "remote_or_local",
        }
    }

    fn from_name(name: &str) -> Option<CompactionPlace> {
        CompactionPlace::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// Settings of an open database. Set the fields that matter and take the rest from [`Default`]:
/// later versions may have more.
///
/// ```
/// use tombolo::{Db, Options};
///
/// # fn main() -> tombolo::Result<()> {
/// let options = Options { memory_bytes: 1 << 30, ..Options::default() };
/// let db = Db::builder("mem://orders").options(options).open().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of memory for everything: memtables take up to a quarter, the block cache what the
    /// rest leaves. Default 256 MiB, at least 1 MiB.
    pub memory_bytes: u64,
    /// Bytes that a memtable takes before it is flushed. Default: a sixteenth of the memory; of a
    /// store behind a network up to a quarter, divided by the databases that share the budget,
    /// while flushes keep up. Larger: fewer, larger flushes, longer replay.
    pub memtable_bytes: Option<u64>,
    /// Most writes of one database that may be unfinished at once; beyond it, `Busy`. Default
    /// 65,536.
    pub writes_in_flight_max: u64,
    /// Whether compaction runs by itself. Default true; false for bulk loads that end with
    /// [`crate::Db::compact`].
    pub automatic_compaction: bool,
    /// Most bytes a second that flush and compaction write together; 0 for no bound. Default 0; a
    /// bound keeps the disk free for reads and the log, and slows writers once background work
    /// falls behind.
    pub background_bytes_per_second_max: u64,
    /// A directory of its own on a local disk, for a cache of blocks under the one in memory.
    /// Default: none. For a store that is far away or paid for by the request. One process at a
    /// time uses it: another goes on without. Counts when the database is opened.
    pub flash_cache_directory: Option<PathBuf>,
    /// Most bytes that the cache in `flash_cache_directory` takes, at least 4 MiB. Default: eight
    /// times `memory_bytes`. More, as far as data read again fits; a GiB takes about 5 MiB of
    /// memory. Counts when the database is opened.
    pub flash_cache_bytes: Option<u64>,
    /// Where compactions run, of keyspaces that do not say it themselves. Default `Local`; the
    /// others need [`crate::Builder::compaction_workers`], and take compaction off this machine.
    pub compaction: CompactionPlace,
    /// From when on an operation is slow: noted in [`crate::Db::slow_operations`], told to the
    /// listener, and a warning of `tracing` without its key. Default: none is. Only the program
    /// knows how slow is too slow; two looks at the clock for each operation.
    pub slow_operation: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_bytes: 256 << 20,
            memtable_bytes: None,
            writes_in_flight_max: 65_536,
            automatic_compaction: true,
            background_bytes_per_second_max: 0,
            flash_cache_directory: None,
            flash_cache_bytes: None,
            compaction: CompactionPlace::Local,
            slow_operation: None,
        }
    }
}

/// A setting's name with its unit, default and meaning, for help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Unit, default and the reason to change it.
    pub help: &'static str,
}

impl Options {
    /// All names that [`Options::set`] takes.
    pub const SETTINGS: &'static [Setting] = &[
        Setting {
            name: "memory_bytes",
            help: "bytes for memtables, caches and queues (default 256MiB): more for read-heavy data \
                larger than it",
        },
        Setting {
            name: "memtable_bytes",
            help: "bytes of one memtable (default memory_bytes / 16, of a far store up to a quarter while few \
                databases share the memory): more makes fewer, larger flushes",
        },
        Setting {
            name: "writes_in_flight_max",
            help: "unfinished writes before Busy (default 65536): less bounds what a crash leaves unknown",
        },
        Setting { name: "automatic_compaction", help: "true or false (default true): false for bulk loads" },
        Setting {
            name: "background_bytes_per_second_max",
            help: "bytes a second that flush and compaction write together (default 0, no bound): a bound \
                keeps the disk free for reads",
        },
        Setting {
            name: "flash_cache_directory",
            help: "a directory of its own on a local disk for a cache of blocks (default none): for stores \
                that are far away",
        },
        Setting {
            name: "flash_cache_bytes",
            help: "most bytes in flash_cache_directory (default 8 * memory_bytes): more, as far as what is \
                read again fits",
        },
        Setting {
            name: "compaction",
            help: "local, remote or remote_or_local (default local): where compactions run, of keyspaces that \
                do not say it; others than local need workers",
        },
        Setting {
            name: "slow_operation",
            help: "none, or from when on an operation is slow, such as 50ms (default none): it is noted and \
                warned of",
        },
    ];

    /// Sets one setting by name, as command lines give it. Bytes are a number, or one with KiB,
    /// MiB, GiB or TiB behind it.
    ///
    /// # Errors
    /// `Invalid` for an unknown name or a value out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "memory_bytes" => self.memory_bytes = size(name, value)?,
            "memtable_bytes" => self.memtable_bytes = Some(size(name, value)?),
            "writes_in_flight_max" => self.writes_in_flight_max = number(name, value)?,
            "automatic_compaction" => self.automatic_compaction = truth(name, value)?,
            "background_bytes_per_second_max" => self.background_bytes_per_second_max = size(name, value)?,
            "flash_cache_directory" => self.flash_cache_directory = (!value.is_empty()).then(|| value.into()),
            "flash_cache_bytes" => self.flash_cache_bytes = Some(size(name, value)?),
            "compaction" => self.compaction = compaction_place(name, value)?,
            "slow_operation" if value == "none" => self.slow_operation = None,
            "slow_operation" => {
                let from = parse_duration(value).filter(|from| !from.is_zero());
                self.slow_operation = Some(from.ok_or_else(|| bad_value(name, value, SLOW_WANTED))?);
            }
            _ => return Err(unknown(name, Options::SETTINGS)),
        }
        Ok(())
    }

    /// The flash cache that the settings ask for: directory and bytes.
    pub(crate) fn flash_cache(&self) -> Option<(PathBuf, u64)> {
        let bytes = self
            .flash_cache_bytes
            .unwrap_or_else(|| self.memory_bytes.saturating_mul(8))
            .max(FLASH_CACHE_BYTES_MIN);
        self.flash_cache_directory.clone().map(|directory| (directory, bytes))
    }

    /// # Errors
    /// `Invalid` when settings that count at the opening only are not those of `before`.
    pub(crate) fn check_change(&self, before: &Options) -> Result<()> {
        for (name, is_same) in [
            ("flash_cache_directory", self.flash_cache_directory == before.flash_cache_directory),
            ("flash_cache_bytes", self.flash_cache_bytes == before.flash_cache_bytes),
        ] {
            if !is_same {
                let error = Error::new(
                    ErrorKind::Invalid,
                    format!("setting {name} counts when the database is opened"),
                );
                return Err(error.advice("close the database and open it with the setting"));
            }
        }
        Ok(())
    }

    /// Sets from `name=value` texts.
    ///
    /// # Errors
    /// As [`Options::set`]; `Invalid` without `=`.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Options> {
        let mut options = Options::default();
        for setting in settings {
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("{setting:?} is no setting"))
                    .advice("write settings as name=value")
            })?;
            options.set(name.trim(), value.trim())?;
        }
        options.check()?;
        Ok(options)
    }

    /// # Errors
    /// `Invalid` when a setting is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let out_of_range = |name: &str, found: u64, range: &str| {
            let error = Error::new(ErrorKind::Invalid, format!("setting {name} is out of range"))
                .expected(range)
                .found(found);
            Err(error.advice(help_of(name)))
        };
        if !(1 << 20..=MEMORY_BYTES_MAX).contains(&self.memory_bytes) {
            return out_of_range(
                "memory_bytes",
                self.memory_bytes,
                &format!("1048576 to {MEMORY_BYTES_MAX}"),
            );
        }
        if let Some(bytes) = self.memtable_bytes
            && !(4 << 10..=self.memory_bytes).contains(&bytes)
        {
            return out_of_range("memtable_bytes", bytes, "4096 to memory_bytes");
        }
        if self.memtable_bytes() > self.memory_bytes / 4 {
            let (memtable, memory) = (self.memtable_bytes(), self.memory_bytes);
            return Err(Error::new(
                ErrorKind::Invalid,
                "the settings memtable_bytes and memory_bytes contradict each other",
            )
            .expected("memtable_bytes of at most a quarter of memory_bytes, which memtables may take in all")
            .found(format!("memtable_bytes={memtable} with memory_bytes={memory}"))
            .advice(format!(
                "set memory_bytes to at least {}, or memtable_bytes to at most {}",
                memtable.saturating_mul(4),
                memory / 4
            )));
        }
        if let Some(bytes) = self.flash_cache_bytes
            && !(FLASH_CACHE_BYTES_MIN..=FLASH_CACHE_BYTES_MAX).contains(&bytes)
        {
            return out_of_range(
                "flash_cache_bytes",
                bytes,
                &format!("{FLASH_CACHE_BYTES_MIN} to {FLASH_CACHE_BYTES_MAX}"),
            );
        }
        if self.writes_in_flight_max == 0 {
            return out_of_range("writes_in_flight_max", 0, "at least 1");
        }
        Ok(())
    }

    /// Bytes of one memtable.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.unwrap_or(self.memory_bytes / 16)
    }
}

/// The largest budget: 16 TiB. Tables of the cache grow with it, and no machine has more.
const MEMORY_BYTES_MAX: u64 = 1 << 44;

/// Fewest bytes of a flash cache: a few regions.
pub(crate) const FLASH_CACHE_BYTES_MIN: u64 = 4 << 20;
/// Most bytes of a flash cache: 32 TiB, as many regions of their largest size as it can have.
pub(crate) const FLASH_CACHE_BYTES_MAX: u64 = 1 << 45;

/// How the blocks of a keyspace's tables are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// Fast. The default.
    #[default]
    Lz4,
    /// Smaller, slower to write.
    Zstd,
}

impl Compression {
    /// Its name in settings.
    fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// What the tables of a keyspace aim at, which decides how much is written and how many tables a
/// read looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Shape {
    /// One sorted run for each level, each a few times as large as the one above it: reads look
    /// into few tables, and each byte is written again a few times on its way through each level.
    /// The default.
    #[default]
    Leveled,
    /// Tiers, merged once they have grown to about the same size (RocksDB's universal compaction):
    /// each byte is written again as often as its tier has doubled, reads look into more runs, and
    /// old versions may take twice the space of the last tier, beside it.
    Tiered,
    /// Tiers that are merged further once reads have cost as much as merging does: for a keyspace
    /// whose use changes or is not known.
    Auto,
    /// Nothing is merged. Whole tables go, the oldest first, once they hold more than `fifo_bytes`
    /// in all: **the oldest data is lost by design**. For caches, logs and time series.
    Fifo,
}

impl Shape {
    const ALL: [Shape; 4] = [Shape::Leveled, Shape::Tiered, Shape::Auto, Shape::Fifo];

    /// Its name in settings.
    fn name(self) -> &'static str {
        match self {
            Shape::Leveled => "leveled",
            Shape::Tiered => "tiered",
            Shape::Auto => "auto",
            Shape::Fifo => "fifo",
        }
    }

    /// Whether compaction makes runs of level 0 fewer.
    pub(crate) fn merges_runs(self) -> bool {
        self != Shape::Fifo
    }

    /// The shape of a name.
    pub(crate) fn from_name(name: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|shape| shape.name() == name)
    }
}

/// Settings of a keyspace: given when it is created, and changed by
/// [`crate::Keyspace::set_options`]. Set the fields that matter and take the rest from [`Default`]:
/// later versions may have more.
///
/// ```
/// use tombolo::{Compression, Db, KeyspaceOptions};
///
/// # fn main() -> tombolo::Result<()> {
/// let db = Db::builder("mem://orders").open().wait()?;
/// let cold = KeyspaceOptions { compression: Compression::Zstd, ..KeyspaceOptions::default() };
/// let archive = db.open_or_create_keyspace("archive", cold).wait()?;
/// assert_eq!(archive.options().compression, Compression::Zstd);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// How blocks are compressed. Default LZ4.
    pub compression: Compression,
    /// How blocks of the last level are compressed, which holds most of the data. Default `None`:
    /// as the others.
    pub compression_lowest: Option<Compression>,
    /// Bytes of a data block before compression. Default `None`: 16 KiB while the memory budget can
    /// hold the database, where larger blocks make all reads cheaper, and 8 KiB beyond, where each
    /// miss pays for its block. Each table keeps those that it was written with.
    pub block_bytes: Option<u32>,
    /// Filter bits per key; 0 for none. Default 10: about 1 % of the reads of absent keys touch a
    /// block.
    pub filter_bits: u8,
    /// Values that reads give begin in memory at multiples of this: a power of two, at most 4096.
    /// Default 1. For readers that cast values in place instead of parsing them; blocks grow by the
    /// gaps.
    pub value_alignment: u16,
    /// How tables are merged. Default leveled.
    pub shape: Shape,
    /// Of [`Shape::Fifo`], which needs it: bytes that the keyspace's tables may have in all.
    /// Default `None`.
    pub fifo_bytes: Option<u64>,
    /// The merge operator, which [`crate::Keyspace::merge`] needs. Default none. It stays once it
    /// is set: operands mean what it says.
    pub operator: Option<OperatorName>,
    /// The compaction filter, which decides what compaction keeps
    /// ([`crate::Builder::compaction_filter`]). Default none. Where it is not there, nothing is
    /// filtered.
    pub compaction_filter: Option<FilterName>,
    /// How long a value lives that is put or merged without a time to live of its own: at least a
    /// millisecond. Default `None`: for ever. Those that are there stay as they are.
    pub ttl: Option<Duration>,
    /// Values of at least so many bytes lie in objects of their own, so that compaction moves
    /// references to them and not their bytes; 0 for none. Default 0: a read of such a value takes
    /// a request more, and overwritten values stay for a while. From 16 KiB on it pays as a rule.
    pub separate_bytes: u32,
    /// The types of its keys and values, in the words of the library that reads and writes them
    /// (`tombolo-typed`), which refuses a keyspace of others. Default none. They stay once they are
    /// set. At most 4,096 bytes without control characters.
    pub types: Option<String>,
    /// Where its compactions run. Default `None`: as [`Options::compaction`] says.
    pub compaction: Option<CompactionPlace>,
    /// From which age on data goes into the database's cold store ([`crate::Builder::cold_store`]):
    /// at least a second, of the shapes leveled and fifo. Default `None`: never.
    pub cold_after: Option<Duration>,
    /// The last level stays free for tables that are ingested behind all that the keyspace holds
    /// ([`crate::IngestOptions::behind`]), and deletes stay told above it. Default
    /// `false`: deletes would never go. For a keyspace whose history is filled in while it is
    /// written. It is set when the keyspace is made, or never; it can be taken back.
    pub ingest_behind: bool,
    /// The stream that orders its writes: 0, the database's own, or one of 1 to 255, which is made
    /// with its first keyspace. Default 0. Streams share no log, no lock and no numbers, so that
    /// threads which write to keyspaces of different streams do not meet; each takes memory for
    /// memtables of its own. A batch is of one stream. It is set when the keyspace is made, and
    /// stays.
    pub stream: u32,
}

/// The greatest number of a stream.
const STREAM_MAX: u32 = 255;

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions {
            compression: Compression::Lz4,
            compression_lowest: None,
            block_bytes: None,
            filter_bits: 10,
            value_alignment: 1,
            shape: Shape::Leveled,
            fifo_bytes: None,
            operator: None,
            compaction_filter: None,
            ttl: None,
            separate_bytes: 0,
            types: None,
            compaction: None,
            cold_after: None,
            ingest_behind: false,
            stream: 0,
        }
    }
}

impl KeyspaceOptions {
    /// All names that [`KeyspaceOptions::set`] takes.
    pub const SETTINGS: &'static [Setting] = &[
        Setting { name: "compression", help: "none, lz4 or zstd (default lz4): zstd for cold data" },
        Setting {
            name: "compression_lowest",
            help: "none, lz4, zstd or same (default same): of the last level, which holds most of the data; \
                zstd saves space",
        },
        Setting {
            name: "block_bytes",
            help: "bytes of a block, 1024 to 1048576, or auto (default auto: 16384 while memory_bytes can \
                hold the database, 8192 beyond): more \
                   for scans, less for single reads",
        },
        Setting {
            name: "filter_bits",
            help: "filter bits per key, 0 to 30 (default 10): 0 when absent keys are never read",
        },
        Setting {
            name: "value_alignment",
            help: "a power of two, 1 to 4096 (default 1): values begin at multiples of it in memory, to \
                cast them in place",
        },
        Setting {
            name: "shape",
            help: "leveled, tiered, auto or fifo (default leveled): tiered writes less and reads more, auto \
                lets reads decide, fifo drops the oldest data beyond fifo_bytes",
        },
        Setting {
            name: "fifo_bytes",
            help: "bytes that tables may have in all under shape=fifo, at least 1 MiB, or none (default \
                none): the oldest tables beyond them are dropped",
        },
        Setting {
            name: "operator",
            help: "a merge operator with its version, such as add_u64@1, or none (default none): for \
                merges; it stays once it is set",
        },
        Setting {
            name: "compaction_filter",
            help: "a compaction filter of the program with its version, such as sessions@1, or none (default \
                none): decides what compaction keeps",
        },
        Setting {
            name: "ttl",
            help: "none, or how long values live that are put from now on, such as 10m (default none): for \
                caches and sessions",
        },
        Setting {
            name: "separate_bytes",
            help: "values from this size on lie in objects of their own, 512 to 67108864, or 0 for none \
                (default 0): 16KiB where values are large, so that each is written once beside the log",
        },
        Setting {
            name: "types",
            help: "the types of keys and values, as tombolo-typed says them, or none (default none): it \
                refuses a keyspace of others; they stay once they are set",
        },
        Setting {
            name: "compaction",
            help: "local, remote, remote_or_local or database (default database: as the database's setting \
                says): where its compactions run",
        },
        Setting {
            name: "cold_after",
            help: "none, or the age from which on data goes into the database's cold store, such as 30d \
                (default none): of the shapes leveled and fifo",
        },
        Setting {
            name: "ingest_behind",
            help: "true or false (default false): true, when the keyspace is made, lets tables be ingested \
                behind what it holds; deletes stay until it is false",
        },
        Setting {
            name: "stream",
            help: "0 to 255 (default 0, the database's own): the stream that orders its writes, with a log \
                and memtables of its own; set when the keyspace is made",
        },
    ];

    /// Sets one setting by name.
    ///
    /// # Errors
    /// `Invalid` for an unknown name or a value out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "compression" => self.compression = compression(name, value)?,
            "compression_lowest" => {
                self.compression_lowest =
                    if value == "same" { None } else { Some(compression(name, value)?) };
            }
            "block_bytes" if value == "auto" => self.block_bytes = None,
            "block_bytes" => match size(name, value).map(u32::try_from) {
                Ok(Ok(bytes @ 1024..=1_048_576)) => self.block_bytes = Some(bytes),
                _ => return Err(bad_value(name, value, "1024 to 1048576, or auto")),
            },
            "filter_bits" => {
                let bits = number(name, value)?;
                self.filter_bits = match u8::try_from(bits) {
                    Ok(bits @ 0..=30) => bits,
                    _ => return Err(bad_value(name, value, "0 to 30")),
                }
            }
            "value_alignment" => {
                let alignment = number(name, value)?;
                self.value_alignment = match u16::try_from(alignment) {
                    Ok(alignment @ 1..=4096) if alignment.is_power_of_two() => alignment,
                    _ => return Err(bad_value(name, value, "a power of two, 1 to 4096")),
                }
            }
            "shape" => {
                self.shape = Shape::from_name(value)
                    .ok_or_else(|| bad_value(name, value, "leveled, tiered, auto or fifo"))?;
            }
            "fifo_bytes" if value == "none" => self.fifo_bytes = None,
            "fifo_bytes" => match size(name, value)? {
                bytes if bytes >= FIFO_BYTES_MIN => self.fifo_bytes = Some(bytes),
                _ => return Err(bad_value(name, value, "at least 1048576, or none")),
            },
            "operator" if value == "none" => self.operator = None,
            "operator" => self.operator = Some(OperatorName::parse(value)?),
            "compaction_filter" if value == "none" => self.compaction_filter = None,
            "compaction_filter" => self.compaction_filter = Some(FilterName::parse(value)?),
            "ttl" if value == "none" => self.ttl = None,
            "ttl" => {
                let ttl = parse_duration(value).filter(|ttl| !ttl.is_zero() && ttl_ms(*ttl) <= EXPIRY_MS_MAX);
                self.ttl = Some(ttl.ok_or_else(|| bad_value(name, value, TTL_WANTED))?);
            }
            "separate_bytes" => match size(name, value).map(u32::try_from) {
                Ok(Ok(bytes @ (0 | SEPARATE_BYTES_MIN..=SEPARATE_BYTES_MAX))) => self.separate_bytes = bytes,
                _ => return Err(bad_value(name, value, "512 to 67108864, or 0")),
            },
            "types" if value == "none" => self.types = None,
            "types" => {
                if value.is_empty()
                    || value.len() > KEYSPACE_OPTION_BYTES_MAX
                    || value.contains(char::is_control)
                {
                    return Err(bad_value(name, value, "1 to 4096 bytes of text, or none"));
                }
                self.types = Some(value.to_owned());
            }
            "cold_after" if value == "none" => self.cold_after = None,
            "cold_after" => {
                let age = parse_duration(value).filter(|age| *age >= Duration::from_secs(1));
                self.cold_after = Some(age.ok_or_else(|| bad_value(name, value, AGE_WANTED))?);
            }
            "compaction" if value == "database" => self.compaction = None,
            "compaction" => self.compaction = Some(compaction_place(name, value)?),
            INGEST_BEHIND => self.ingest_behind = truth(name, value)?,
            STREAM => {
                let stream = number(name, value)?;
                self.stream = match u32::try_from(stream) {
                    Ok(stream @ 0..=STREAM_MAX) => stream,
                    _ => return Err(bad_value(name, value, "0 to 255")),
                }
            }
            _ => return Err(unknown(name, KeyspaceOptions::SETTINGS)),
        }
        Ok(())
    }

    /// These with other values of some settings.
    ///
    /// # Errors
    /// As [`KeyspaceOptions::set`].
    pub(crate) fn with(mut self, settings: &[(String, String)]) -> Result<KeyspaceOptions> {
        settings.iter().try_for_each(|(name, value)| self.set(name, value))?;
        self.check()?;
        Ok(self)
    }

    /// # Errors
    /// `Invalid` when a setting is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let mut again = KeyspaceOptions::default();
        self.to_manifest().settings.iter().try_for_each(|(name, value)| again.set(name, value))?;
        if self.stream > STREAM_MAX {
            return Err(bad_value(STREAM, &self.stream.to_string(), "0 to 255"));
        }
        match (self.shape, self.fifo_bytes) {
            (Shape::Fifo, None) => Err(Error::new(
                ErrorKind::Invalid,
                "the setting shape=fifo needs fifo_bytes: the oldest data beyond them is dropped",
            )
            .advice("set fifo_bytes to what the keyspace may hold, such as fifo_bytes=10GiB")),
            (Shape::Leveled | Shape::Tiered | Shape::Auto, Some(_)) => Err(Error::new(
                ErrorKind::Invalid,
                "the setting fifo_bytes bounds nothing but a keyspace with shape=fifo",
            )
            .advice("set shape=fifo, or fifo_bytes=none")),
            (Shape::Tiered | Shape::Auto, None) if self.cold_after.is_some() => Err(Error::new(
                ErrorKind::Invalid,
                "the setting cold_after is of keyspaces with shape=leveled or shape=fifo",
            )
            .advice("set shape=leveled, or cold_after=none")),
            (Shape::Fifo, Some(_)) if self.ingest_behind => Err(Error::new(
                ErrorKind::Invalid,
                "the setting ingest_behind keeps what shape=fifo drops: the oldest data",
            )
            .advice("take another shape, or ingest_behind=false")),
            _ if self.cold_after.is_some() && self.ingest_behind => Err(Error::new(
                ErrorKind::Invalid,
                "the settings cold_after and ingest_behind both want the last level",
            )
            .advice("take one of them: set cold_after=none, or ingest_behind=false")),
            _ => Ok(()),
        }
    }

    /// How blocks of the last level are compressed.
    pub(crate) fn compression_of_lowest(&self) -> Compression {
        self.compression_lowest.unwrap_or(self.compression)
    }

    /// All settings by name, as [`KeyspaceOptions::set`] takes them.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("compression", self.compression.name().to_owned()),
            ("compression_lowest", self.compression_lowest.map_or("same", Compression::name).to_owned()),
            ("block_bytes", self.block_bytes.map_or("auto".to_owned(), |bytes| bytes.to_string())),
            ("filter_bits", self.filter_bits.to_string()),
            ("value_alignment", self.value_alignment.to_string()),
            ("shape", self.shape.name().to_owned()),
            ("fifo_bytes", self.fifo_bytes.map_or("none".to_owned(), |bytes| bytes.to_string())),
            ("operator", self.operator.as_ref().map_or("none".to_owned(), ToString::to_string)),
            (
                "compaction_filter",
                self.compaction_filter.as_ref().map_or("none".to_owned(), ToString::to_string),
            ),
            ("ttl", self.ttl.map_or("none".to_owned(), show_duration)),
            ("separate_bytes", self.separate_bytes.to_string()),
            ("types", self.types.clone().unwrap_or_else(|| "none".to_owned())),
            ("compaction", self.compaction.map_or("database", CompactionPlace::name).to_owned()),
            ("cold_after", self.cold_after.map_or("none".to_owned(), show_duration)),
            (INGEST_BEHIND, self.ingest_behind.to_string()),
            (STREAM, self.stream.to_string()),
        ]
    }

    /// As the manifest and the log keep them.
    pub(crate) fn to_manifest(&self) -> manifest::KeyspaceOptions {
        // Most keyspaces have neither of these: thousands of them pay nothing for it.
        let is_said = |name: &str, value: &str| match name {
            INGEST_BEHIND => self.ingest_behind,
            // The log and the manifest have it beside the settings.
            STREAM => false,
            _ => !OF_FEW.contains(&name) || value != "none",
        };
        let settings = self.settings().into_iter().filter(|(name, value)| is_said(name, value));
        let settings = settings.map(|(name, value)| (name.into(), value));
        manifest::KeyspaceOptions { features: self.features(), ..manifest::KeyspaceOptions::of(settings) }
    }

    /// Bits of the kinds of entries that may be written from here on.
    fn features(&self) -> u64 {
        ENTRY_FEATURES_OF_KEYSPACES
            | if self.operator.is_some() { ENTRY_FEATURES_OPERANDS } else { 0 }
            | if self.separate_bytes > 0 { ENTRY_FEATURES_APART } else { 0 }
            | if self.ingest_behind { KEYSPACE_FEATURE_BEHIND } else { 0 }
    }

    /// Whether these may take the place of those `before`, in a keyspace that has entries.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check_change(&self, before: &KeyspaceOptions) -> Result<()> {
        if let Some(types) = &before.types
            && self.types.as_ref() != Some(types)
            && !is_enabled(Mutant::TypesChange)
        {
            let error =
                Error::new(ErrorKind::Invalid, "the keyspace has types of keys and values, which stay");
            return Err(error
                .expected(types)
                .found(self.types.as_deref().unwrap_or("none"))
                .advice("write to another keyspace with the other types"));
        }
        if self.stream != before.stream {
            let message = format!("the keyspace is of stream {}, which orders its writes", before.stream);
            return Err(Error::new(ErrorKind::Invalid, message)
                .found(format!("stream {}", self.stream))
                .advice("make another keyspace with that stream, and bring into it what this one holds"));
        }
        if self.ingest_behind && !before.ingest_behind {
            let error = Error::new(ErrorKind::Invalid, "the keyspace may have let deletes go already");
            return Err(error.advice(
                "make another keyspace with ingest_behind=true, and bring into it what this one holds",
            ));
        }
        match &before.operator {
            Some(operator) if self.operator.as_ref() != Some(operator) => {
                let message = format!("the keyspace has merge operator {operator}, which stays");
                Err(Error::new(ErrorKind::Invalid, message)
                    .advice("write to another keyspace with the other operator"))
            }
            _ => Ok(()),
        }
    }

    /// Those of a keyspace of a stream, as the log and the manifest have them.
    ///
    /// # Errors
    /// As [`KeyspaceOptions::from_manifest`].
    pub(crate) fn of_stream(options: &manifest::KeyspaceOptions, stream: u32) -> Result<KeyspaceOptions> {
        Ok(KeyspaceOptions { stream, ..KeyspaceOptions::from_manifest(options)? })
    }

    /// As they take the place of those `before`: what this version does not know stays, and all
    /// that this version may write is allowed.
    pub(crate) fn to_manifest_over(&self, before: &manifest::KeyspaceOptions) -> manifest::KeyspaceOptions {
        let mut options = self.to_manifest();
        options.features |= before.features;
        if is_enabled(Mutant::UnknownSettingsForgotten) {
            return options;
        }
        options.settings.extend(before.settings.iter().filter(|(name, _)| !is_known(name)).cloned());
        options
    }

    /// Settings that this version does not know may be ignored: those that may not have a feature
    /// bit, by which an older version refuses them.
    ///
    /// # Errors
    /// `Unsupported` when a setting has a value that this version does not know.
    pub(crate) fn from_manifest(options: &manifest::KeyspaceOptions) -> Result<KeyspaceOptions> {
        let mut found = KeyspaceOptions::default();
        for (name, value) in options.settings.iter().filter(|(name, _)| is_known(name)) {
            found.set(name, value).map_err(|_| {
                let what =
                    format!("setting {name} of a keyspace has a value that this version does not know");
                Error::new(ErrorKind::Unsupported, what)
                    .found(format!("{value:?}"))
                    .advice("use the version of Tombolo that wrote it, or a later one")
            })?;
        }
        Ok(found)
    }
}

/// Fewest bytes of a keyspace that drops its oldest: below, tables are too few.
const FIFO_BYTES_MIN: u64 = 1 << 20;
/// Settings that are kept where they say something.
const OF_FEW: [&str; 2] = ["types", "cold_after"];
/// What an age looks like, for messages.
const AGE_WANTED: &str = "none, or at least 1s: a whole number with s, m, h or d behind it, such as 30d";
/// What a time to live looks like, for messages.
const SLOW_WANTED: &str = "none, or a whole number above 0 with ms, s, m or h behind it, such as 50ms";
const TTL_WANTED: &str = "none, or a whole number above 0 with ms, s, m, h or d behind it, such as 10m";

/// A time to live in milliseconds.
pub(crate) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
/// Values below it lie in tables whatever the settings say: a reference would save little.
const SEPARATE_BYTES_MIN: u32 = 512;
/// The largest value.
#[allow(clippy::cast_possible_truncation, reason = "64 MiB")]
const SEPARATE_BYTES_MAX: u32 = VALUE_BYTES_MAX as u32;

/// The setting of [`KeyspaceOptions::stream`].
const STREAM: &str = "stream";

/// The setting of [`KeyspaceOptions::ingest_behind`].
const INGEST_BEHIND: &str = "ingest_behind";

/// Whether a keyspace with these options keeps its last level for tables that are ingested behind.
pub(crate) fn keeps_last(options: &manifest::KeyspaceOptions) -> bool {
    options.settings.iter().any(|(name, value)| name == INGEST_BEHIND && value == "true")
}

/// Whether a keyspace has such a setting.
fn is_known(name: &str) -> bool {
    KeyspaceOptions::SETTINGS.iter().any(|setting| setting.name == name)
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| bad_value(name, value, "a whole number, in digits alone"))
}

fn size(name: &str, value: &str) -> Result<u64> {
    parse_size(value).ok_or_else(|| bad_value(name, value, SIZE_WANTED))
}

fn compression(name: &str, value: &str) -> Result<Compression> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    all.into_iter()
        .find(|compression| compression.name() == value)
        .ok_or_else(|| bad_value(name, value, "none, lz4 or zstd"))
}

fn compaction_place(name: &str, value: &str) -> Result<CompactionPlace> {
    CompactionPlace::from_name(value)
        .ok_or_else(|| bad_value(name, value, "local, remote or remote_or_local"))
}

fn truth(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| bad_value(name, value, "true or false"))
}

fn bad_value(name: &str, value: &str, expected: &str) -> Error {
    let error =
        Error::new(ErrorKind::Invalid, format!("setting {name} has an unusable value")).expected(expected);
    error.found(format!("{value:?}")).advice(help_of(name))
}

/// What a setting is, for the user who set it wrongly.
fn help_of(name: &str) -> String {
    let found =
        Options::SETTINGS.iter().chain(KeyspaceOptions::SETTINGS).find(|setting| setting.name == name);
    found.map_or_else(
        || format!("set {name} to what is expected"),
        |setting| format!("{name} is: {}", setting.help),
    )
}

fn unknown(name: &str, settings: &[Setting]) -> Error {
    let names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
    let error = Error::new(ErrorKind::Invalid, format!("there is no setting {name:?}"))
        .expected(format!("one of {}", names.join(", ")));
    error.advice("choose one of these, as name=value")
}
