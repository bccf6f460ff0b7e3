//! `tombolo db import` and `export`: entries as lines, through pipes or files, with bounded memory.
//!
//! Import: `reader thread → chunks → lines → entry → batches`; export: `scan → entry → lines`. What
//! a line looks like is [`lines`]'.

mod lines;
mod source;

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tombolo::{Batch, Db, ErrorKind, Keyspace, KeyspaceOptions};

use self::lines::{Change, Entry, Lines};
use self::source::Source;
use super::tables::{ends, without_operator};
use super::{RangeArguments, Survives, close_after};
use crate::as_of::AsOf;
use crate::database::{DatabaseArguments, LookArguments, NewArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::text::{self, FormArguments};

pub const FORMATS: &str = "\
A line is one entry, in one of two forms:
  ndjson   {\"key\":\"1\",\"value\":\"two books\"}: a string stands for its UTF-8 bytes; bytes that are no UTF-8 are {\"hex\":\"00ff\"};
           \"expires_ms\" says when a value ends. Import takes other changes too, in the place of \"value\": \"merge\":\"…\" (an operand, which may have \"expires_ms\" too),
           \"delete\":true, \"delete\":\"single\", and \"delete_to\":\"…\" (all keys from \"key\" on and before that one)
  tsv      the key, a tab, the value; what is no printable text is $'…' with \\n \\r \\t \\0 \\\\ \\' \\xHH, all else as it is
What export writes import reads back, byte for byte, in either form. `db scan` prints tsv too, and with --json ndjson.";

/// Arguments of `import`.
#[derive(Args)]
#[command(after_help = format!("{FORMATS}

Examples:
  tombolo db import file:///data/orders < orders.ndjson
  zcat old.tsv.gz | tombolo db import file:///data/orders --format tsv --keyspace old --create-keyspace
  tombolo db export file:///data/a | tombolo db import file:///data/b

Batches of about --batch-bytes are written in the order of the lines, each whole or not at all; of a key that comes twice, the last value
stays. A line that is none ends the import: its number is told, and what came before it is written. All is durable when the command ends."))]
pub struct Import {
    #[command(flatten)]
    writer: WriterArguments,
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    /// Creates the keyspace, with its settings at their defaults, if it does not exist.
    #[arg(long)]
    create_keyspace: bool,
    /// What the lines look like; told by the ending of --file when not given, else ndjson.
    #[arg(long, value_enum)]
    format: Option<Lines>,
    /// Reads this file instead of standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Bytes of keys and values that are written together; fewer where one value is long, or many
    /// are short.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = batch_size)]
    batch_bytes: u64,
    /// What each batch survives while the import goes on; at its end all is durable.
    #[arg(long, value_enum, default_value_t = Survives::Accepted)]
    durability: Survives,
    #[command(flatten)]
    new: NewArguments,
}

/// Arguments of `export`.
#[derive(Args)]
#[command(after_help = format!("{FORMATS}

Examples:
  tombolo db export file:///data/orders > orders.ndjson
  tombolo db export file:///data/orders --prefix 2026- --format tsv | cut -f1
  tombolo db export file:///data/orders --file /backup/orders.ndjson

All lines are of one moment, when the command begins: everything that is durable then. The order is that of the keys' bytes."))]
pub struct Export {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    look: LookArguments,
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    /// What the lines look like; told by the ending of --file when not given, else ndjson.
    #[arg(long, value_enum)]
    format: Option<Lines>,
    /// Writes to this new file instead of standard output.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    #[command(flatten)]
    keys: RangeArguments,
    /// Writes operands as they are, as lines that merge, and folds none: where the keyspace's merge
    /// operator is not there.
    #[arg(long)]
    keep_merges: bool,
    #[command(flatten)]
    bounds: FormArguments,
}

/// Most bytes of a batch.
const BATCH_BYTES_MAX: u64 = 64 << 20;

fn batch_size(text: &str) -> std::result::Result<u64, String> {
    text::size(text).and_then(|bytes| match bytes {
        1..=BATCH_BYTES_MAX => Ok(bytes),
        _ => Err(format!("1 to {BATCH_BYTES_MAX} bytes are possible")),
    })
}

/// Most bytes of keys of a batch's range deletes: what the engine takes at once.
const RANGE_BYTES_MAX: usize = 4 << 20;

/// How often progress is drawn.
const DRAW: Duration = Duration::from_millis(100);

/// What has gone through.
struct Progress {
    bar: ProgressBar,
    verb: &'static str,
    begun: Instant,
    drawn: Instant,
    entries: u64,
    bytes: u64,
}

impl Progress {
    fn new(verb: &'static str, watched: bool) -> Progress {
        let bar = if watched { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Progress { bar, verb, begun: Instant::now(), drawn: Instant::now(), entries: 0, bytes: 0 }
    }

    fn count(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.bytes += (key.len() + value.len()) as u64;
        if self.entries.is_multiple_of(256) && !self.bar.is_hidden() && self.drawn.elapsed() >= DRAW {
            self.drawn = Instant::now();
            self.bar.set_message(self.to_text());
            self.bar.tick();
        }
    }

    fn to_text(&self) -> String {
        let elapsed = self.begun.elapsed();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        let rate = (self.entries as f64 / elapsed.as_secs_f64().max(1e-3)) as u64;
        let (entries, bytes) = (text::counted(self.entries, "entry"), text::bytes(self.bytes));
        format!(
            "{} {entries}, {bytes}, in {} ({} per second)",
            self.verb,
            text::duration(elapsed),
            text::count(rate)
        )
    }

    fn to_json(&self) -> serde_json::Value {
        json!({ self.verb: self.entries, "bytes": self.bytes, "seconds": self.begun.elapsed().as_secs_f64() })
    }
}

fn form(format: Option<Lines>, file: Option<&Path>) -> Lines {
    let ending = file.and_then(Path::extension).and_then(|ending| ending.to_str());
    format.unwrap_or(if ending == Some("tsv") { Lines::Tsv } else { Lines::Ndjson })
}

/// The keyspace that entries go into.
fn into(db: &Db, arguments: &Import) -> Result<Keyspace> {
    match db.keyspace(&arguments.keyspace) {
        Err(error) if error.kind() == ErrorKind::NotFound && arguments.create_keyspace => {
            Ok(db.create_keyspace(&arguments.keyspace, KeyspaceOptions::default()).wait()?)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::NotFound(format!(
            "there is no keyspace {:?}: say --create-keyspace to make it",
            arguments.keyspace
        ))),
        found => Ok(found?),
    }
}

/// Runs `import`.
pub fn import(arguments: &Import, output: &Output) -> Result<()> {
    let input: Box<dyn Read + Send> = match &arguments.file {
        Some(path) => Box::new(
            File::open(path).map_err(|error| Failure::io(error, format!("opening {}", path.display())))?,
        ),
        None => Box::new(std::io::stdin()),
    };
    let name = arguments.file.as_ref().map_or("standard input".to_owned(), |path| path.display().to_string());
    let interrupted = interrupt::listen()?;
    let WriterArguments { database, take_over } = &arguments.writer;
    let (db, created) = database.open_or_create(take_over, &arguments.new)?;
    let keyspace = match into(&db, arguments) {
        Ok(keyspace) => keyspace,
        Err(failure) => return close_after(&db, Err(failure)),
    };
    let form = form(arguments.format, arguments.file.as_deref());
    let mut progress = Progress::new("imported", output.is_watched());
    let mut writer = Writer {
        db: &db,
        keyspace: &keyspace,
        arguments,
        batch: Batch::new(),
        taken: 0,
        range_bytes: 0,
        written: 0,
        ended: 0,
    };
    let read = pump(Source::new(input, name), form, &mut writer, &mut progress, &interrupted);
    progress.bar.finish_and_clear();
    // What came before a wrong line, or before Ctrl-C, is written all the same.
    let written = writer.write();
    close_after(&db, written.and(read))?;
    let ended = writer.ended;
    let told = || {
        let mut json = progress.to_json();
        json["created"] = json!(created);
        json["ended"] = json!(ended);
        json
    };
    let shown = || match ended {
        0 => progress.to_text(),
        _ => {
            let ended = text::count(ended);
            format!("{}; {ended} of them had ended, and their keys have no value", progress.to_text())
        }
    };
    output.result(told, shown)
}

struct Writer<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    arguments: &'a Import,
    batch: Batch,
    /// Entries that it was given; one that it refuses is not in it, and fails its writing.
    taken: u64,
    /// Bytes of the keys of the batch's range deletes.
    range_bytes: usize,
    /// Entries that were written.
    written: u64,
    /// Entries whose values had ended.
    ended: u64,
}

impl Writer<'_> {
    /// Takes an entry.
    fn take(&mut self, entry: &Entry) -> Result<()> {
        let (key, value) = (&entry.key, entry.value());
        // One that has ended since it was exported hides what was there before, as a delete does.
        let end = match &entry.change {
            Change::Put { expires_ms, .. } | Change::Merge { expires_ms, .. } => *expires_ms,
            _ => None,
        };
        let has_ended = end.is_some_and(|end| end <= self.db.time_ms());
        self.ended += u64::from(has_ended);
        let range_bytes = if let Change::DeleteTo(to) = &entry.change { key.len() + to.len() } else { 0 };
        // Whatever --batch-bytes says, one long value or many short ones do not go beyond what the
        // engine takes at once.
        if !self.batch.has_room(key, value) || self.range_bytes + range_bytes > RANGE_BYTES_MAX {
            self.write()?;
        }
        self.taken += 1;
        self.range_bytes += range_bytes;
        match &entry.change {
            Change::Put { .. } | Change::Merge { .. } if has_ended => self.batch.delete(self.keyspace, key),
            Change::Put { expires_ms: None, .. } => self.batch.put(self.keyspace, key, value),
            Change::Put { expires_ms: Some(end), .. } => {
                self.batch.put_until(self.keyspace, key, value, *end)
            }
            Change::Merge { operand, expires_ms: None } => self.batch.merge(self.keyspace, key, operand),
            Change::Merge { operand, expires_ms: Some(end) } => {
                self.batch.merge_until(self.keyspace, key, operand, *end)
            }
            Change::Delete => self.batch.delete(self.keyspace, key),
            Change::SingleDelete => self.batch.single_delete(self.keyspace, key),
            Change::DeleteTo(to) => self.batch.delete_range(self.keyspace, key, to),
        };
        if self.batch.bytes() as u64 >= self.arguments.batch_bytes { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let entries = std::mem::take(&mut self.taken);
        self.range_bytes = 0;
        if entries == 0 {
            return Ok(());
        }
        match self.db.write_with(batch, self.arguments.durability.into()).wait() {
            Ok(()) => {
                self.written += entries;
                Ok(())
            }
            Err(error) => {
                let (first, last) = (self.written + 1, self.written + entries);
                Err(error
                    .context(format!(
                        "writing the entries {first} to {last}; the {} before them are written",
                        self.written
                    ))
                    .into())
            }
        }
    }
}

fn pump(
    mut source: Source,
    form: Lines,
    writer: &mut Writer<'_>,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<()> {
    while let Some(line) = source.next(progress.entries, interrupted)? {
        if line.is_empty() {
            continue;
        }
        let entry = match form.parse(line) {
            Ok(entry) => entry,
            Err(what) => return Err(source.wrong(&what, progress.entries)),
        };
        writer.take(&entry)?;
        progress.count(&entry.key, entry.value());
    }
    Ok(())
}

/// Runs `export`.
pub fn export(arguments: &Export, output: &Output) -> Result<()> {
    let range = arguments.keys.parse(arguments.bounds.form())?;
    let form = form(arguments.format, arguments.file.as_deref());
    let interrupted = interrupt::listen()?;
    arguments.database.look(&arguments.look, output, |db| {
        let keyspace = db.keyspace(&arguments.keyspace)?;
        let shape = (form, arguments.keep_merges);
        write_out(&keyspace, range.clone(), shape, arguments.file.as_deref(), (output, &interrupted))
            .map_err(|failure| without_operator(&keyspace, failure))?
            .end(&AsOf::of(db))
    })
}

/// Writes all entries of a range.
fn write_out<'a>(
    keyspace: &Keyspace,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    (form, keeps_merges): (Lines, bool),
    file: Option<&'a Path>,
    (output, interrupted): (&'a Output, &AtomicBool),
) -> Result<Exported<'a>> {
    let mut sink = match file {
        Some(path) => Sink::File(NewFile::create(path)?),
        None => Sink::Output(output),
    };
    let mut progress = Progress::new("exported", output.is_watched());
    let mut line = Vec::new();
    let cursor = keyspace.cursor::<Vec<u8>>(range);
    let mut cursor = if keeps_merges { cursor.unfolded() } else { cursor };
    while cursor.next()? {
        let (key, value) = (cursor.key(), cursor.value());
        line.clear();
        let end = cursor.expires_ms();
        if end.is_some() && !form.says_ends() {
            return Err(Failure::Usage(
                "values of this keyspace end, which lines of tsv cannot say: export as ndjson".to_owned(),
            ));
        }
        match cursor.operands() {
            None => form.show(key, value, end, &mut line),
            Some(unfolded) if unfolded.operands_end => return Err(ends(key)),
            Some(unfolded) if form.says_merges() => form.show_unfolded(key, &unfolded, &mut line),
            Some(_) => {
                let message = "lines of tsv cannot say what was merged: export as ndjson, or fold operands";
                return Err(Failure::Usage(message.to_owned()));
            }
        }
        sink.write(&line)?;
        progress.count(key, value);
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
    }
    progress.bar.finish_and_clear();
    Ok(Exported { sink, progress, output })
}

/// All lines were handed over.
struct Exported<'a> {
    sink: Sink<'a>,
    progress: Progress,
    output: &'a Output,
}

impl Exported<'_> {
    /// Keeps what was written, and says of which moment it is.
    fn end(self, as_of: &AsOf) -> Result<()> {
        let Exported { sink, progress, output } = self;
        match sink {
            Sink::File(file) => {
                file.keep()?;
                output.result(
                    || as_of.added_to(progress.to_json()),
                    || format!("{}, {as_of}", progress.to_text()),
                )
            }
            Sink::Output(output) => {
                output.finish()?;
                if output.is_watched() {
                    note(format_args!("{}, {as_of}", progress.to_text()));
                }
                Ok(())
            }
        }
    }
}

/// Where an export goes.
enum Sink<'a> {
    Output(&'a Output),
    File(NewFile<'a>),
}

impl Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Sink::Output(output) => output.bytes(bytes),
            Sink::File(file) => file.write(bytes),
        }
    }
}

/// A file that is there when it is whole: removed again unless it is kept.
struct NewFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    is_kept: bool,
}

impl<'a> NewFile<'a> {
    fn create(path: &'a Path) -> Result<NewFile<'a>> {
        let file = File::create_new(path)
            .map_err(|error| Failure::io(error, format!("making the new file {}", path.display())))?;
        Ok(NewFile { path, file: BufWriter::with_capacity(1 << 20, file), is_kept: false })
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::io(error, format!("writing {}", self.path.display()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed(error))
    }

    /// Makes it durable, its name too.
    fn keep(mut self) -> Result<()> {
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(|error| self.failed(error))?;
        let directory =
            self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| self.failed(error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_kept && std::fs::remove_file(self.path).is_err() {
            note(format_args!("tombolo: {} is not whole and could not be removed", self.path.display()));
        }
    }
}
