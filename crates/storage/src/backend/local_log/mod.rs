//! The log on a disk of this host. One directory per epoch and lane:
//!
//! ```text
//! {directory}/{incarnation:016x}/log/{epoch:016x}-{lane:04x}/control      fence word and what the writer says about itself; mapped
//! {directory}/{incarnation:016x}/log/{epoch:016x}-{lane:04x}/{n:08x}      segment n: a header page, then frames
//! ```
//!
//! Two forms of the same bytes, chosen at each open: **mapped** stores a frame through a shared
//! mapping, without a system call, unless it is large or syncs cover little; **written** by one
//! `pwrite`. Both
//! fence alike (rule 8): store the frame, full fence, read the fence word, accept. Appends are
//! durable by `fdatasync`, shared by all who wait (`group`).
//!
//! Data flow: `lane` (append, roll, sync) takes segments from `supply`, keeps the unsynced copy in
//! `unsynced`, and stores through `segment`; `rest` gives space back when nothing is written; a
//! successor goes through `fence` and `read`, a follower through `follow` and `read`; they find
//! their way along `chain`. The decision record `docs/decisions/2026-11-21-local-log.md` has the
//! protocol, its invariants and its failure cases.

mod chain;
mod control;
mod fence;
mod follow;
mod group;
mod lane;
mod read;
mod rest;
mod segment;
mod supply;
mod unsynced;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Completion, Env, FileSystemKind};
use tombolo_format::log_frame::{LaneHeader, SegmentIdentity};

use self::control::{CONTROL_NAME, Control, Words};
use self::lane::Lane;
use self::segment::segment_number;
use crate::backend::local::{check_file_system, file_system_kind};
use crate::fenced::Fenced;
use crate::lanes::{Lanes, LogLane, world_ended};
use crate::log_memory::LaneMemory;
use crate::{
    Appended, Epoch, Error, ErrorKind, FailureDomain, Incarnation, Log, LogAppend, LogContext, LogId,
    LogOffset, LogReader, LogRecord, LogStore, ObjectStore, Pressure, Registry, Result, Survival, Uri,
};

/// First byte of a record's configuration.
const CONFIGURATION_VERSION: u8 = 1;

/// Most lanes of one epoch: their number has four digits in a directory's name.
const LANES_MAX: u32 = 1 << 16;

/// How records get into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Through a shared mapping: no system call per append; a failing device kills the process.
    Mapped,
    /// By one `pwrite` per append: a failing device is an error.
    Written,
}

/// Settings of a local log. The defaults suit; the others are for tests and measurements.
#[derive(Clone, Debug)]
pub struct LocalLogOptions {
    /// How records get into the file.
    pub form: Form,
    /// The user vouches that one host alone uses the directory, though its file system is a
    /// network's.
    pub single_host: bool,
    /// Bytes of a lane's first segments. They double with the live bytes, so that a small database
    /// has a small log.
    pub segment_bytes_min: u32,
    /// Bytes of a segment at most, unless one entry needs more.
    pub segment_bytes_max: u32,
    /// Segments up to this size are zeroed though nobody waits for syncs, and kept though nothing
    /// in them is live.
    pub small_segment_bytes: u32,
    /// Larger ones are zeroed where somebody waits for a sync after so many bytes or fewer. Without
    /// it each such sync changes metadata, and a journal writes tens of KiB; with it each byte is
    /// written twice.
    pub zeroed_sync_bytes: u64,
    /// A sync begins by itself when so many bytes wait for one, or a quarter of what may.
    pub unsynced_sync_bytes: usize,
    /// Appends get `Busy` when more bytes than this, or than the context's memory gives, would wait
    /// for a sync: their copy is kept in memory.
    pub unsynced_bytes_max: usize,
    /// Bytes not yet trimmed beyond which the log wants its oldest data flushed.
    pub wanted_bytes_max: u64,
}

impl Default for LocalLogOptions {
    fn default() -> LocalLogOptions {
        LocalLogOptions {
            form: Form::Mapped,
            single_host: false,
            segment_bytes_min: 16 << 10,
            segment_bytes_max: 64 << 20,
            small_segment_bytes: 1 << 20,
            zeroed_sync_bytes: 256 << 10,
            unsynced_sync_bytes: 4 << 20,
            unsynced_bytes_max: 64 << 20,
            wanted_bytes_max: 256 << 20,
        }
    }
}

/// Logs in a directory of this host.
#[derive(Clone, Debug)]
pub struct LocalLogStore {
    env: Env,
    directory: PathBuf,
    /// The directory is the object store's own.
    is_paired: bool,
    options: LocalLogOptions,
    /// Of fences, up to the ends that they found, for the reading that follows.
    fenced: Arc<Fenced<(LogOffset, fence::Kept)>>,
}

impl LocalLogStore {
    /// Logs under `directory`. With `is_paired` that is the directory of the database's objects
    /// too, and the identity holds wherever it is moved. Touches nothing.
    pub fn new(
        env: &Env,
        directory: impl Into<PathBuf>,
        is_paired: bool,
        options: LocalLogOptions,
    ) -> LocalLogStore {
        LocalLogStore {
            env: env.clone(),
            directory: directory.into(),
            is_paired,
            options,
            fenced: Arc::new(Fenced::new(fence::KEPT_BYTES_MAX)),
        }
    }

    /// What the logs of a database are kept under.
    fn life(&self, context: &LogContext) -> Incarnation {
        context.life(self.is_paired)
    }

    fn lane_identity(&self, context: &LogContext, id: LogId) -> SegmentIdentity {
        SegmentIdentity { incarnation: self.life(context).0, epoch: id.epoch.0, lane: id.lane, segment: 0 }
    }

    fn logs(&self, incarnation: Incarnation) -> PathBuf {
        self.directory.join(format!("{:016x}", incarnation.0)).join("log")
    }

    fn lane_directory(&self, incarnation: Incarnation, id: LogId) -> PathBuf {
        self.logs(incarnation).join(format!("{:016x}-{:04x}", id.epoch.0, id.lane))
    }

    fn configuration(incarnation: Incarnation) -> Bytes {
        let mut bytes = vec![CONFIGURATION_VERSION];
        bytes.extend_from_slice(&incarnation.0.to_le_bytes());
        bytes.into()
    }

    /// Where a log lies that the manifest names.
    fn find(&self, context: &LogContext, log: &LogRecord) -> Result<PathBuf> {
        let path = self.lane_directory(self.life(context), log.id);
        let expected = LocalLogStore::configuration(self.life(context));
        match log.configuration.first() {
            Some(&version) if version > CONFIGURATION_VERSION => Err(Error::new(
                ErrorKind::Unsupported,
                format!("a newer version wrote the log's record ({version})"),
            )
            .object(path.display())
            .advice("use the version of Tombolo that wrote the database, or a newer one")),
            _ if log.configuration == expected => Ok(path),
            _ => Err(Error::corrupt(
                path.display(),
                0,
                format!("the log record {expected:02x?}"),
                format!("{:02x?}", log.configuration),
            )
            .context("the manifest names a log that is no local one of this database")),
        }
    }

    fn make_lane(&self, context: &LogContext, id: LogId) -> Result<Arc<Lane>> {
        let directory = self.lane_directory(self.life(context), id);
        let identity = self.lane_identity(context, id);
        let files = self.env.files();
        files
            .create_directories(&directory)
            .map_err(|error| Error::io(error, "making a log", directory.display()))?;
        let words = match self.options.form {
            Form::Written if copies_on_write(&self.env, &directory) => Words::Written,
            _ => Words::Mapped,
        };
        let control = Control::create(&self.env, &directory, owner_of(identity), words)?;
        let held = LaneMemory::new(&context.memory);
        let lane = Lane::create(&self.env, &self.options, directory.clone(), identity, control, held)?;
        files
            .sync_directory(&directory)
            .map_err(|error| Error::io(error, "making a log", directory.display()))?;
        Ok(Arc::new(lane))
    }

    /// Makes lanes, and publishes them.
    async fn begin(&self, context: &LogContext, lanes: Range<u32>) -> Result<Arc<dyn Log>> {
        let logs = self.logs(self.life(context));
        self.env
            .files()
            .create_directories(&logs)
            .map_err(|error| Error::io(error, "making a log", logs.display()))?;
        let mut made = Vec::new();
        for lane in lanes.clone() {
            match self.make_lane(context, LogId { epoch: context.epoch, lane }) {
                Ok(lane) => made.push(lane),
                Err(error) => {
                    // Nothing names them yet. One that another call of this epoch made stays.
                    let kept = u32::from(error.kind() != ErrorKind::AlreadyExists);
                    for lane in lanes.start..lane + kept {
                        let _ = self.remove(
                            &self.lane_directory(self.life(context), LogId { epoch: context.epoch, lane }),
                        );
                    }
                    return Err(error);
                }
            }
            self.env.yield_now().await;
        }
        let configuration = LocalLogStore::configuration(self.life(context));
        let record = |lane| LogRecord {
            id: LogId { epoch: context.epoch, lane },
            configuration: configuration.clone(),
        };
        context.chain.publish_all(lanes.map(record).collect()).await?;
        Ok(Arc::new(Lanes::new(made)) as Arc<dyn Log>)
    }

    /// Deletes the directory of a log; files of others stay, and the directory with them.
    fn remove(&self, directory: &Path) -> io::Result<()> {
        let files = self.env.files();
        let entries = match files.list_atomically(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed?,
        };
        for entry in entries {
            if entry.name == CONTROL_NAME || segment_number(&entry.name).is_some() {
                match files.remove_file(&directory.join(&entry.name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        match files.remove_directory(directory) {
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Deletes logs of older epochs that the manifest does not name: a predecessor died before it
    /// could. Best effort.
    fn collect(&self, context: &LogContext) {
        let logs = self.logs(self.life(context));
        let named: Vec<LogId> = context.chain.named().into_iter().map(|record| record.id).collect();
        for entry in self.env.files().list_atomically(&logs).unwrap_or_default() {
            let Some(id) = parse_lane_name(&entry.name) else { continue };
            if entry.is_directory && id.epoch < context.epoch && !named.contains(&id) {
                let directory = logs.join(&entry.name);
                if let Err(error) = self.remove(&directory) {
                    tracing::warn!(%error, path = %directory.display(), "a log that nothing names stays for \
                        now");
                }
            }
        }
    }
}

/// What a lane's directory name stands for.
fn parse_lane_name(name: &str) -> Option<LogId> {
    let (epoch, lane) = name.split_once('-')?;
    let id = LogId {
        epoch: Epoch(u64::from_str_radix(epoch, 16).ok()?),
        lane: u32::from_str_radix(lane, 16).ok()?,
    };
    (format!("{:016x}-{:04x}", id.epoch.0, id.lane) == name).then_some(id)
}

impl LogStore for LocalLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            if lanes == 0 || lanes > LANES_MAX {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("a log of {lanes} lanes; 1 to {LANES_MAX} are possible"),
                ));
            }
            self.fenced.clear();
            self.env.yield_now().await;
            // A network file system cannot carry the fence word.
            check_file_system(&self.env, &self.directory, self.options.single_host)?;
            let log = self.begin(context, 0..lanes).await?;
            self.collect(context);
            Ok(log)
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            check_file_system(&self.env, &self.directory, self.options.single_host)?;
            self.begin(context, lane..lane + 1).await
        })
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            let directory = self.find(context, log)?;
            context.check_older(log, "fences", directory.display())?;
            self.env.yield_now().await;
            let lane = self.lane_identity(context, log.id);
            let (sealed, kept) = fence::fence(&self.env, &directory, lane, context.epoch, from)?;
            self.fenced.keep(self.life(context), log.id, kept.bytes(), (sealed, kept));
            Ok(sealed)
        })
    }

    fn read<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
        to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let directory = self.find(context, log)?;
            self.env.yield_now().await;
            let lane = self.lane_identity(context, log.id);
            let (end, kept) = self.fenced.take(self.life(context), log.id);
            // A later epoch's fence may have found more than the one that read this.
            let kept = if to <= end { kept } else { fence::Kept::default() };
            let reader = read::open(&self.env, &directory, lane, (from, to), kept)?;
            Ok(Box::new(reader) as Box<dyn LogReader>)
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let directory = self.find(context, log)?;
            self.env.yield_now().await;
            let lane = self.lane_identity(context, log.id);
            let (to, kept) = follow::durable_end(&self.env, &directory, lane, from)?;
            let reader = read::open(&self.env, &directory, lane, (from, to.max(from)), kept)?;
            Ok(Box::new(reader) as Box<dyn LogReader>)
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let directory = self.find(context, log)?;
            context.check_freed(log, directory.display())?;
            self.env.yield_now().await;
            self.remove(&directory).map_err(|error| Error::io(error, "deleting a log", directory.display()))
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let (files, logs) = (self.env.files(), self.logs(self.life(context)));
            let failed = |error| Error::io(error, "deleting a database's logs", logs.display());
            let entries = match files.list_atomically(&logs) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                listed => listed.map_err(failed)?,
            };
            for id in entries
                .iter()
                .filter_map(|entry| parse_lane_name(&entry.name))
                .filter(|id| id.epoch < context.epoch)
            {
                self.remove(&self.lane_directory(self.life(context), id)).map_err(failed)?;
            }
            // What somebody else has put there keeps its directory.
            if files.remove_directory(&logs).is_ok() {
                let _ = logs.parent().map(|life| files.remove_directory(life));
            }
            Ok(())
        })
    }

    fn is_of_one_host(&self) -> bool {
        true
    }

    fn survival(&self) -> Survival {
        let (form, failing, switch) = match self.options.form {
            Form::Mapped => (
                "mapped",
                "A device that fails under a mapping kills the process (SIGBUS; no handler is put into your \
                program). What was durable is found \
                 again if the device still reads.",
                "form=written",
            ),
            Form::Written => {
                ("written", "A device that fails is an error of the write or sync concerned.", "form=mapped")
            }
        };
        let mut notes = vec![
            failing.to_owned(),
            format!("This is the {form} form; {switch} gives the other, at any open."),
            "After a failed sync the unsynced bytes go to a new file before anything is acknowledged as \
            durable; a disk that keeps failing ends \
             the handle with an error."
                .to_owned(),
            "Damage below what was durable is found and reported. It cannot be told from a torn tail only \
            after a loss of power, in the last \
             records made durable, when neither a later record, nor a clean close, nor the control page \
             (written back by the kernel within half a \
             minute) says that they were."
                .to_owned(),
            "A takeover fences processes of this host only.".to_owned(),
        ];
        if self.options.form == Form::Mapped && copies_on_write(&self.env, &self.directory) {
            notes.push(
                "This file system copies on write: when it is full, the process is killed (SIGBUS). \
                Use form=written."
                    .to_owned(),
            );
        }
        if self.options.single_host {
            notes.push(
                "single_host=yes: you vouch that no other host opens this database; two at once lose data."
                    .to_owned(),
            );
        }
        Survival {
            store: format!("the local log in {} ({form})", self.directory.display()),
            domain: FailureDomain::Host,
            accepted: "survives the end of the process, kill -9 included; not a crash of the host or a loss \
                of power"
                .into(),
            durable: "survives a crash of the host and a loss of power, as far as the disk keeps what \
                fdatasync acknowledged; not the loss of the \
                      disk"
                .into(),
            notes,
        }
    }

    fn identity(&self) -> String {
        if self.is_paired { "file-log".into() } else { format!("file-log:{}", self.directory.display()) }
    }
}

/// `file:///path?form=mapped|written&single_host=yes|no`, the log of the objects in the same
/// directory, or of others.
fn open_uri(env: &Env, uri: &Uri, objects: &Arc<dyn ObjectStore>) -> Result<Arc<dyn LogStore>> {
    uri.allow_parameters(&["form", "io", "single_host"])?;
    let directory = uri.path()?;
    let form = match uri.choice("form", &["mapped", "written"])? {
        Some("mapped") => Form::Mapped,
        Some(_) => Form::Written,
        // On a full disk that copies on write, a store through a mapping kills the process.
        None if copies_on_write(env, &directory) => Form::Written,
        None => LocalLogOptions::default().form,
    };
    let options =
        LocalLogOptions { form, single_host: uri.flag("single_host")?, ..LocalLogOptions::default() };
    let is_paired = objects.describe() == format!("file://{}", directory.display());
    check_file_system(env, &directory, options.single_host)?;
    Ok(Arc::new(LocalLogStore::new(env, directory, is_paired, options)))
}

/// Whether overwriting a file in a directory needs new room. Where that cannot be told, opening
/// will say why.
fn copies_on_write(env: &Env, directory: &Path) -> bool {
    matches!(file_system_kind(env, directory), Ok(FileSystemKind::CopyOnWrite(_)))
}

/// Registers `file://` logs.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_log_store("file", Arc::new(open_uri));
}

fn owner_of(lane: SegmentIdentity) -> LaneHeader {
    LaneHeader { incarnation: lane.incarnation, epoch: lane.epoch, lane: lane.lane }
}

impl LogLane for Arc<Lane> {
    fn append(&self, entry: &LogAppend<'_>) -> Result<Appended> {
        Lane::append(self, entry)
    }

    fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        Lane::durable(self, end)
    }

    fn sync(&self, end: LogOffset) -> Result<()> {
        Lane::sync(self, end)
    }

    fn durable_through(&self) -> LogOffset {
        Lane::durable_through(self)
    }

    fn trim(&self, before: LogOffset) {
        Lane::trim(self, before);
    }

    fn pressure(&self) -> Pressure {
        Lane::pressure(self)
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            Lane::confirm(self)
        })
    }

    fn give_up(&self) {
        Lane::give_up(self);
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.give_back();
            let closed = match self.stop() {
                Ok(end) => Lane::durable(self, end)
                    .await
                    .unwrap_or_else(|| Err(world_ended()))
                    .and_then(|()| self.note_durable()),
                Err(error) => Err(error),
            };
            // However it ended: after closing a log, its directory may be deleted.
            self.supply_closed().await;
            closed
        })
    }
}

#[cfg(test)]
mod tests;
