//! Events into files: blocks, names of keyspaces, the index, and the next file when one is full.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::{Env, File};
use tombolo_format::trace::{
    BlockBuilder, End, Event, Header, IndexEntry, KeyMapping, TRACE_INDEX_ENTRIES_MAX, encode_index,
    encode_name,
};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{NameOf, RecordKeys, RecordOptions, RecordReport};

/// Writes the files of a recording.
pub(super) struct Writer {
    env: Env,
    options: RecordOptions,
    header: Header,
    names: NameOf,
    mapping: Option<KeyMapping>,
    builder: BlockBuilder,
    file: Option<Open>,
    /// Finished files, oldest first, with their bytes.
    files: VecDeque<(PathBuf, u64)>,
    /// Files begun.
    begun: u32,
    /// Events that it was given, and that it wrote.
    given: u64,
    events: u64,
    bytes: u64,
    ended: Option<Error>,
}

/// The file that is written.
struct Open {
    path: PathBuf,
    file: Arc<dyn File>,
    at: u64,
    events: u64,
    index: Vec<IndexEntry>,
    named: BTreeSet<u32>,
}

impl Open {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = |error| Error::io(error, "writing a trace", self.path.display());
        self.file.write_all_at(bytes, self.at).map_err(failed)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Writer {
    pub(super) fn begin(env: &Env, options: &RecordOptions, names: NameOf) -> Result<Writer> {
        let secret = options.secret.unwrap_or_else(|| env.random_u64());
        let unix_ns = u64::try_from(env.unix_time().as_nanos()).unwrap_or(0);
        let mut writer = Writer {
            env: env.clone(),
            header: Header {
                start_unix_ns: unix_ns,
                sampled_one_in: options.sampled_one_in,
                keys: options.traced_keys(),
                has_values: options.values,
                is_of_blocks: false,
                origin: format!("tombolo {}", env!("CARGO_PKG_VERSION")),
            },
            options: options.clone(),
            names,
            mapping: match options.keys {
                RecordKeys::Clear => None,
                RecordKeys::Hashed => Some(KeyMapping::hashed(secret)),
                RecordKeys::Anonymised => Some(KeyMapping::ordered(secret)),
            },
            builder: BlockBuilder::default(),
            file: None,
            files: VecDeque::new(),
            begun: 0,
            given: 0,
            events: 0,
            bytes: 0,
            ended: None,
        };
        writer.next_file()?;
        Ok(writer)
    }

    fn path_of(&self, number: u32) -> PathBuf {
        let mut path = self.options.path.clone().into_os_string();
        if number > 1 {
            path.push(format!(".{number}"));
        }
        path.into()
    }

    fn next_file(&mut self) -> Result<()> {
        self.begun += 1;
        let path = self.path_of(self.begun);
        let created = self.env.files().create_new(&path);
        let file = created.map_err(|error| Error::io(error, "making a trace", path.display()))?;
        let mut open = Open { path, file, at: 0, events: 0, index: Vec::new(), named: BTreeSet::new() };
        open.append(&self.header.encode())?;
        self.file = Some(open);
        Ok(())
    }

    /// Writes so many events. After an error nothing is written any more.
    pub(super) fn write<'a>(&mut self, count: u64, events: impl Iterator<Item = Event<'a>>) -> Result<()> {
        self.given += count;
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        // A panic here would leave the queue without a server, and reach who stops the recording.
        let written = catch_unwind(AssertUnwindSafe(|| self.try_write(events))).unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Bug, "the recording panicked");
            Err(error.advice("what was written until then can be read; please report the panic's message"))
        });
        if let Err(error) = &written {
            self.ended = Some(error.clone());
        }
        written
    }

    fn try_write<'a>(&mut self, events: impl Iterator<Item = Event<'a>>) -> Result<()> {
        let (mut key, mut end) = (Vec::new(), Vec::new());
        for mut event in events {
            self.name(event.keyspace)?;
            if let Some(mapping) = &self.mapping {
                mapping.map(event.key, &mut key);
                event.key = &key;
                if !event.end.is_empty() {
                    mapping.map(event.end, &mut end);
                    event.end = &end;
                }
            }
            // Keys and values that are recorded are far below what a block holds.
            let pushed = self.builder.push(&event);
            pushed.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
            if self.builder.is_full() {
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn name(&mut self, keyspace: u32) -> Result<()> {
        let Some(open) = &mut self.file else { return Ok(()) };
        if open.named.insert(keyspace)
            && let Some(name) = (self.names)(keyspace)
        {
            open.append(&encode_name(keyspace, &name))?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<()> {
        let events = self.builder.len();
        if events == 0 {
            return Ok(());
        }
        let frame = self.builder.finish();
        let Some(open) = &mut self.file else { return Ok(()) };
        let head = tombolo_format::trace::TraceFrame::decode(&frame);
        let head = head.map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))?;
        let entry = IndexEntry {
            offset: open.at,
            first_ns: head.first_ns,
            last_ns: head.last_ns,
            events: head.events,
        };
        open.append(&frame)?;
        open.index.push(entry);
        open.events += events as u64;
        self.events += events as u64;
        let (is_long, at) = (self.options.file_bytes_max.is_some_and(|max| open.at >= max), open.at);
        let kept: u64 = self.files.iter().map(|(_, bytes)| bytes).sum();
        if kept + at >= self.options.bytes_max {
            let error = Error::new(ErrorKind::OutOfSpace, "the recording has as many bytes as it may");
            return Err(error.advice("keep fewer files, sample fewer keys, or give it more bytes"));
        }
        if is_long {
            self.finish_file(0)?;
            self.remove_oldest();
            self.next_file()?;
        }
        Ok(())
    }

    fn finish_file(&mut self, dropped: u64) -> Result<()> {
        let Some(mut open) = self.file.take() else { return Ok(()) };
        let index_offset = open.at;
        let failed = |error| Error::io(error, "writing a trace", open.path.display());
        // A write that failed may have left bytes behind this.
        let cut = open.file.set_length(open.at).map_err(failed);
        let finished = cut.and_then(|()| {
            for part in open.index.clone().chunks(TRACE_INDEX_ENTRIES_MAX) {
                open.append(&encode_index(part))?;
            }
            open.append(&End { index_offset, events: open.events, dropped }.encode())?;
            open.file.sync_data().map_err(|error| Error::io(error, "writing a trace", open.path.display()))
        });
        self.bytes += open.at;
        self.files.push_back((open.path, open.at));
        finished
    }

    fn remove_oldest(&mut self) {
        // The file that begins next is one, too.
        let kept = self.options.files_max.map_or(usize::MAX, |files| files as usize);
        while self.files.len() >= kept {
            let Some((path, _)) = self.files.pop_front() else { return };
            // One that somebody took away is gone, too.
            let _ = self.env.files().remove_file(&path);
        }
    }

    /// Ends the file, properly if that is possible: one that ends in the midst of an event can be
    /// read up to there.
    pub(super) fn end(&mut self, dropped: u64) {
        if self.file.is_none() {
            return;
        }
        let ended = match self.ended {
            None => self.write_block(),
            Some(_) => Ok(()),
        };
        if let Err(error) = ended.and(self.finish_file(dropped)) {
            self.ended.get_or_insert(error);
        }
        let directory = self.options.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // The content is durable. A name that is not is found missing.
        let _ = self.env.files().sync_directory(directory.unwrap_or(Path::new(".")));
    }

    pub(super) fn report(&self) -> RecordReport {
        let open = self.file.as_ref();
        RecordReport {
            events: self.events,
            dropped: if self.ended.is_some() { self.given - self.events } else { 0 },
            bytes: self.bytes + open.map_or(0, |open| open.at),
            files: self
                .files
                .iter()
                .map(|(path, _)| path)
                .chain(open.map(|open| &open.path))
                .cloned()
                .collect(),
            ended: self.ended.clone(),
        }
    }
}
