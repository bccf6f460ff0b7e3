//! `file:///path`: objects as files under a directory of this host.
//!
//! An object's name is its path under the root. How an object comes to be, in this order:
//!
//! 1. its bytes are written to a temporary file under `tmp/`, whose lock says that its process
//!    lives;
//! 2. the bytes are made durable (`fdatasync`);
//! 3. a hard link gives them their name: the link fails when the name is taken, which is
//!    put-if-absent;
//! 4. the directory is made durable; only then is the creation acknowledged. A put that finds the
//!    name taken, and a list that shows it, make the directory durable too before they say so:
//!    nothing that was concluded from an answer is undone by a loss of power.
//!
//! Invariants:
//! - A name under the root, `tmp/` apart, names whole and durable bytes.
//! - Directories named `log` belong to the local log. They are neither listed nor written to
//!   through here; nor is `tmp`.
//! - A directory is durable, with all its parents up to the root, before a name is made in it.
//!
//! Calls that change something are made on the calling thread. Reads go down as batches
//! ([`tombolo_env::File::read_many`]): what the page cache holds is copied at once, for the rest no
//! thread is held. With `io=direct` tables pass the page cache by.

mod facts;
mod list;
mod read;
pub(crate) mod reserve;
mod temporary;
mod trial;
mod writer;

pub use trial::trial;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, FileSystem, FileSystemKind};

use crate::backend::begin;
use crate::backend::handles::Handles;
use crate::facts::Fact;
use crate::mutant::{Mutant, is_enabled};
use crate::object::check_put;
use crate::{
    Error, ErrorKind, FailureDomain, Life, Listed, ObjectKind, ObjectName, ObjectStore, ObjectWriter,
    Placement, PutOutcome, Registry, Request, Result, StoreTraits, Survival, Uri,
};
use temporary::Temporary;

/// How the places of objects begin that another directory can take over by a link.
const PLACE_PREFIX: &str = "file:";

/// Directory of temporary files under the root.
const TEMPORARY_DIRECTORY: &str = "tmp";

/// Name of the directories that belong to the local log.
const LOG_DIRECTORY: &str = "log";

/// Directories remembered as durable; beyond this the memory starts anew.
const KNOWN_DIRECTORIES_MAX: usize = 4096;

/// Of the files kept open, one in so many may be one that compaction reads.
const PASSING_PART: usize = 8;

/// Objects in a directory. Cheap to clone; any number of processes of one host may use one
/// directory.
#[derive(Clone, Debug)]
pub struct LocalObjectStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    root: PathBuf,
    /// Directories that this process has seen made durable up to the root's parent.
    known_directories: Mutex<HashSet<PathBuf>>,
    handles: Handles<read::Handle>,
    options: LocalOptions,
    reserve: reserve::Reserve,
    /// Tables that are read once, in order: their open files, with the page cache told so.
    passing: Handles<read::Handle>,
}

/// What a `file://` store is told besides its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalOptions {
    /// `single_host=yes`: the user vouches that one host alone uses this network file system.
    pub single_host: bool,
    /// `io=direct`: tables are read and written past the page cache.
    pub direct: bool,
}

/// Refuses a network file system unless the user vouches that one host alone uses it. A path that
/// does not exist yet is judged by its nearest parent that does.
///
/// # Errors
/// `Unsupported` when refused; what the file system says otherwise.
pub fn check_file_system(env: &Env, path: &Path, single_host: bool) -> Result<()> {
    match file_system_kind(env, path)? {
        FileSystemKind::Network(kind) if !single_host => Err(Error::new(
            ErrorKind::Unsupported,
            format!("a network file system ({kind}) cannot keep two hosts apart"),
        )
        .object(path.display())
        .advice("use a local disk; if one host alone uses this directory, say so with ?single_host=yes")),
        _ => Ok(()),
    }
}

/// The kind of the file system of a path, or of its nearest parent that exists.
///
/// # Errors
/// What the file system says.
pub fn file_system_kind(env: &Env, path: &Path) -> Result<FileSystemKind> {
    for ancestor in path.ancestors() {
        match env.files().kind(ancestor) {
            Ok(kind) => return Ok(kind),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => {
                return Err(Error::io(error, "asking for the kind of a file system", ancestor.display()));
            }
        }
    }
    Ok(FileSystemKind::Local)
}

/// Refuses direct IO where the file system does not do it: better now than at the first table.
fn check_direct(env: &Env, root: &Path) -> Result<()> {
    let files = env.files();
    let at = root.ancestors().find(|ancestor| files.metadata(ancestor).is_ok()).unwrap_or(Path::new("/"));
    let facts =
        files.facts(at).map_err(|error| Error::io(error, "looking at a file system", at.display()))?;
    let Err(reason) = facts.direct_io else { return Ok(()) };
    Err(Error::new(ErrorKind::Unsupported, format!("direct io: {reason}"))
        .object(root.display())
        .advice("use io=buffered, or a directory of another file system"))
}

impl LocalObjectStore {
    /// The store in the directory `root`, which is made when the first object is.
    ///
    /// # Errors
    /// `Invalid` when `root` is a file; `Unsupported` on a network file system, see
    /// [`check_file_system`], and for direct IO where the file system does not do it.
    pub fn new(env: &Env, root: impl Into<PathBuf>, options: LocalOptions) -> Result<LocalObjectStore> {
        let root = root.into();
        check_file_system(env, &root, options.single_host)?;
        match env.files().metadata(&root) {
            Ok(metadata) if !metadata.is_directory => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "a file where a directory of objects was expected",
                )
                .object(root.display())
                .advice("name a directory, or a path that does not exist yet"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Error::io(error, "looking at the directory of objects", root.display()));
            }
        }
        if options.direct {
            check_direct(env, &root)?;
        }
        let handles = Handles::new(env.files().open_files_max());
        let (reserve, passing) =
            (reserve::Reserve::default(), Handles::new(env.files().open_files_max() / PASSING_PART));
        let shared = Shared {
            env: env.clone(),
            root,
            known_directories: Mutex::default(),
            handles,
            options,
            reserve,
            passing,
        };
        Ok(LocalObjectStore { shared: Arc::new(shared) })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    fn files(&self) -> &dyn FileSystem {
        self.shared.env.files()
    }

    /// The path of an object.
    fn path(&self, name: &ObjectName) -> Result<PathBuf> {
        let mut directories = name.as_str().split('/').rev().skip(1);
        let first = name.as_str().split('/').next();
        if first == Some(TEMPORARY_DIRECTORY) || directories.any(|segment| segment == LOG_DIRECTORY) {
            return Err(Error::new(ErrorKind::Invalid, "a name that the local store keeps for itself")
                .object(name)
                .advice("use names that do not begin with tmp/ and have no directory named log"));
        }
        Ok(self.shared.root.join(name.as_str()))
    }

    /// Makes a directory, and it and its parents durable, before anything is named in it.
    fn ensure_directory(&self, directory: &Path) -> io::Result<()> {
        if self.shared.known_directories.lock().contains(directory) {
            return Ok(());
        }
        self.files().create_directories(directory)?;
        // Another process may have made one of them a moment ago and not have synced it yet: the
        // file about to be made here must not hang on that.
        for ancestor in directory.ancestors().skip(1) {
            let outside = !ancestor.starts_with(&self.shared.root);
            match self.files().sync_directory(ancestor) {
                Ok(()) => {}
                // Above the root, others' directories may be closed to us; their entries were there
                // before us.
                Err(error) if outside && error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
            if outside {
                break;
            }
        }
        let mut known = self.shared.known_directories.lock();
        if known.len() >= KNOWN_DIRECTORIES_MAX {
            known.clear();
        }
        known.insert(directory.into());
        Ok(())
    }

    fn forget_directory(&self, directory: &Path) {
        self.shared.known_directories.lock().remove(directory);
    }

    /// Gives the durable bytes of `from` the name `to`. An outcome is returned only when the
    /// directory is durable; `NotFound` means that `from` is gone.
    fn publish(&self, from: &Path, to: &Path) -> Result<PutOutcome> {
        let directory = to.parent().unwrap_or(&self.shared.root);
        let link = || -> Result<io::Result<()>> {
            self.ensure_directory(directory).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    name_is_taken_by_tree(directory)
                }
                _ => Error::io(error, "making a directory for objects", directory.display()),
            })?;
            if is_enabled(Mutant::ObjectPutReplaces) {
                return Ok(self.files().rename(from, to));
            }
            Ok(self.files().hard_link(from, to))
        };
        let mut linked = link()?;
        if matches!(&linked, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            // Somebody removed the directory since this process made it (or the source: then this
            // fails again).
            self.forget_directory(directory);
            linked = link()?;
        }
        match linked {
            Ok(()) => {
                if !is_enabled(Mutant::ObjectCreatedBeforeDirectorySync) {
                    self.sync_names(directory).map_err(|error| unknown_outcome(error, to))?;
                }
                Ok(PutOutcome::Created)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.found_taken(to),
            Err(error) => {
                // Full, no right, too many links: no link was made. Of an error of the device that
                // is not certain.
                let refused =
                    matches!(error.kind(), io::ErrorKind::TooManyLinks | io::ErrorKind::CrossesDevices);
                let error = Error::io(error, "naming an object", to.display());
                let certain = refused || !matches!(error.kind(), ErrorKind::Retry | ErrorKind::Bug);
                Err(if certain { error } else { unknown_outcome(error, to) })
            }
        }
    }

    /// As [`LocalObjectStore::publish`], for a temporary file.
    fn publish_temporary(&self, temporary: &Temporary, to: &Path) -> Result<PutOutcome> {
        self.publish(temporary.path(), to).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::Retry, "a temporary file was taken away")
                .object(temporary.path().display())
                .source(error),
            _ => error,
        })
    }

    /// The name was taken: makes sure that it stays taken before saying so.
    fn found_taken(&self, path: &Path) -> Result<PutOutcome> {
        let metadata = self.files().metadata(path);
        if matches!(metadata, Ok(metadata) if metadata.is_directory) {
            return Err(name_is_taken_by_tree(path));
        }
        if !is_enabled(Mutant::ObjectExistsBeforeDirectorySync) {
            self.sync_names(path.parent().unwrap_or(&self.shared.root))?;
        }
        Ok(PutOutcome::Exists)
    }

    fn sync_names(&self, directory: &Path) -> Result<()> {
        self.files()
            .sync_directory(directory)
            .map_err(|error| Error::io(error, "making names durable", directory.display()))
    }

    fn put(&self, request: Request, name: &ObjectName, bytes: &[u8]) -> Result<PutOutcome> {
        let path = self.path(name)?;
        check_put(path.display(), bytes.len())?;
        // Spares the write when the name is taken already; the link decides otherwise.
        if self.files().metadata(&path).is_ok() {
            return self.found_taken(&path);
        }
        self.with_reserve(request, || {
            let temporary = Temporary::create(self)?;
            temporary.write(bytes, 0)?;
            temporary.sync()?;
            self.publish_temporary(&temporary, &path)
        })
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        let path = self.path(name)?;
        self.shared.handles.forget(name);
        self.shared.passing.forget(name);
        match self.files().remove_file(&path) {
            Ok(()) if is_enabled(Mutant::ObjectDeletedWithoutDirectorySync) => Ok(()),
            Ok(()) => self.sync_names(path.parent().unwrap_or(&self.shared.root)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                    Ok(())
                }
                _ => Err(Error::io(error, "deleting an object", path.display())),
            },
        }
    }

    async fn copy_bytes(&self, request: Request, from: &ObjectName, to: &ObjectName) -> Result<PutOutcome> {
        let mut writer =
            writer::LocalWriter::new(self, request, to, Placement::new(ObjectKind::Other, Life::Medium))?;
        let mut offset = 0;
        loop {
            let bytes = self.read_range(request, from, offset..offset + writer::BUFFER_BYTES as u64).await?;
            if bytes.is_empty() {
                break;
            }
            offset += bytes.len() as u64;
            writer.write(&bytes)?;
            self.shared.env.yield_now().await;
        }
        writer.publish().map(|(outcome, _)| outcome)
    }
}

/// Names form a tree: an object cannot have the name of a directory, nor a directory that of an
/// object.
fn name_is_taken_by_tree(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, "no object's name may be a directory of another's")
        .object(path.display())
        .advice("choose another name, or remove what does not belong in this directory")
}

/// The name is there, but whether it stays is not known.
fn unknown_outcome(error: Error, path: &Path) -> Error {
    if error.kind() == ErrorKind::Closed {
        return error;
    }
    Error::new(ErrorKind::OutcomeUnknown, "an object was named, and whether its name is durable is not known")
        .object(path.display())
        .advice("put the same bytes again, or read the object, to find out")
        .source(error)
}

impl ObjectStore for LocalObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "creating an object").await?;
            Ok(Box::new(writer::LocalWriter::new(self, request, name, placement)?) as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "putting an object").await?;
            self.put(request, name, &bytes)
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "reading an object").await?;
            self.read_range(request, name, range).await
        })
    }

    fn with_held(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
        show: &mut dyn FnMut(&[u8]),
    ) -> bool {
        self.show_held(request, name, range, show)
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "reading an object").await?;
            self.read_many(request, name, ranges).await
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "asking for an object's length").await?;
            let path = self.path(name)?;
            match self.files().metadata(&path) {
                Ok(metadata) if !metadata.is_directory => Ok(metadata.length),
                Ok(_) => Err(read::not_found(&path)),
                Err(error) => Err(read::read_error(error, &path)),
            }
        })
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "listing objects").await?;
            self.walk(prefix, after, limit)
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "deleting an object").await?;
            self.remove(name)
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "copying an object").await?;
            let (from_path, to_path) = (self.path(from)?, self.path(to)?);
            match self.files().metadata(&from_path) {
                Ok(metadata) if !metadata.is_directory => {}
                Ok(_) => return Err(read::not_found(&from_path)),
                Err(error) => return Err(read::read_error(error, &from_path)),
            }
            match self.publish(&from_path, &to_path) {
                // One file has a limited number of names (65,000 on ext4): go on with a file of its
                // own.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Unsupported)
                        || has_cause(&error, io::ErrorKind::TooManyLinks) =>
                {
                    self.copy_bytes(request, from, to).await
                }
                outcome => outcome,
            }
        })
    }

    fn place(&self, name: &ObjectName) -> Option<String> {
        let path = self.path(name).ok()?;
        path.to_str().map(|path| format!("{PLACE_PREFIX}{path}"))
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(async move {
            let Some(from) = place.strip_prefix(PLACE_PREFIX).map(Path::new) else { return Ok(None) };
            begin(&self.shared.env, request, "naming an object of another store").await?;
            match self.files().metadata(from) {
                Ok(metadata) if !metadata.is_directory => {}
                Ok(_) => return Err(read::not_found(from)),
                Err(error) => return Err(read::read_error(error, from)),
            }
            match self.publish(from, &self.path(to)?) {
                // Another file system, one without links, or a file that has as many names as it
                // can have.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Unsupported)
                        || has_cause(&error, io::ErrorKind::CrossesDevices)
                        || has_cause(&error, io::ErrorKind::TooManyLinks) =>
                {
                    Ok(None)
                }
                outcome => outcome.map(Some),
            }
        })
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "sweeping temporary files").await?;
            temporary::sweep(self)
        })
    }

    fn facts(&self, request: Request) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(async move {
            begin(&self.shared.env, request, "judging a store").await?;
            self.judge()
        })
    }

    // A link is exclusive, and one call shows a directory.
    fn traits(&self) -> StoreTraits {
        StoreTraits { must_prove_put_if_absent: false, lists_may_walk: false }
    }

    fn survival(&self) -> Survival {
        let durable = "survives the end of the process, a crash of the host and a loss of power; does not \
            survive the loss of the disk";
        Survival {
            store: self.describe(),
            domain: FailureDomain::Host,
            accepted: durable.into(),
            durable: durable.into(),
            notes: vec![
                "Any number of processes of one host may use the directory; two hosts may not, and network \
                file systems are refused."
                    .into(),
                "A disk that lies about flushes (a volatile cache without protection) can lose what it \
                acknowledged."
                    .into(),
            ],
        }
    }

    fn describe(&self) -> String {
        format!("file://{}", self.shared.root.display())
    }
}

fn has_cause(error: &Error, kind: io::ErrorKind) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == kind) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Parameters of `file://` that concern the objects.
const OBJECT_PARAMETERS: &[&str] = &["io", "single_host"];
/// Parameters of `file://` that concern the log. A store's own log is named by the store's URI, so
/// that either takes both.
const LOG_PARAMETERS: &[&str] = &["form"];

fn options_of(uri: &Uri) -> Result<LocalOptions> {
    uri.allow_parameters(&[OBJECT_PARAMETERS, LOG_PARAMETERS].concat())?;
    let direct = uri.choice("io", &["buffered", "direct"])? == Some("direct");
    Ok(LocalOptions { single_host: uri.flag("single_host")?, direct })
}

/// Adds `file` to a registry.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_object_store(
        "file",
        Arc::new(|env, uri| {
            let store = LocalObjectStore::new(env, uri.path()?, options_of(uri)?)?;
            Ok(Arc::new(store) as Arc<dyn ObjectStore>)
        }),
    );
}
