//! Where bytes to inspect are: objects of a store, a log's files beside them, or a file by its
//! path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tombolo::{Env, Epoch, Error, ErrorKind};
use tombolo_storage::object::read_whole;
use tombolo_storage::{ObjectName, ObjectStore, Purpose, Request, Uri};

use super::Kind;
use crate::failure::{Failure, Result};

/// Most bytes that are read into memory.
const BYTES_MAX: u64 = 4 << 30;

/// Where.
pub enum Place {
    /// A store.
    Store(Store),
    /// A file.
    File(PathBuf),
}

/// A store, opened for reading.
pub struct Store {
    env: Env,
    uri: Uri,
    objects: Arc<dyn ObjectStore>,
}

impl Place {
    /// A URI has a scheme; everything else is a path, that of a directory a store's.
    pub fn parse(text: &str) -> Result<Place> {
        let uri = match text.contains("://") {
            true => Uri::parse(text)?,
            false if Path::new(text).is_dir() => Uri::from_path(text)?,
            false => return Ok(Place::File(PathBuf::from(text))),
        };
        let env = Env::real();
        let objects = crate::database::registry().open_object_store(&env, &uri)?;
        Ok(Place::Store(Store { env, uri, objects }))
    }

    /// Reads an object or file whole; returns its name for messages.
    pub fn read(&self, name: &str) -> Result<(String, Bytes)> {
        match self {
            Place::Store(store) => Ok((name.to_owned(), store.read(name)?)),
            Place::File(path) if name.is_empty() => read_file(path),
            Place::File(path) => Err(Failure::Usage(format!(
                "{} is a path: name its file, or the store as a URI and then the object {name}",
                path.display()
            ))),
        }
    }
}

fn read_file(path: &PathBuf) -> Result<(String, Bytes)> {
    let shown = path.display().to_string();
    let fail = |error| Error::io(error, "reading", &shown);
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if metadata.is_dir() {
        let advice = std::path::absolute(path).map_or_else(
            |_| String::new(),
            |path| format!("for the database in it write file://{}", path.display()),
        );
        return Err(Error::new(ErrorKind::Invalid, format!("{shown} is a directory")).advice(advice).into());
    }
    if metadata.len() > BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{shown} has {} bytes; {BYTES_MAX} are the most that inspect reads",
            metadata.len()
        )));
    }
    let bytes = std::fs::read(path).map_err(fail)?;
    Ok((shown, bytes.into()))
}

/// The paths in a directory; none when it is not there, or is a file.
fn entries(path: &PathBuf) -> Result<Vec<PathBuf>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let failed = |error| Error::io(error, "listing a directory of logs", path.display());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect(),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(failed(error).into()),
    }
}

impl Store {
    fn request() -> Request {
        Request::new(Purpose::Verify, Epoch::NONE)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        if let Some(path) = self.log_file(name) {
            return Ok(read_file(&path)?.1);
        }
        let name = ObjectName::new(name)?;
        let read = self.env.block_on(read_whole(&*self.objects, Store::request(), &name, BYTES_MAX));
        Ok(read.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                error.advice(format!("`tombolo inspect {}` lists what is there", self.uri.shown()))
            }
            _ => error,
        })?)
    }

    /// A local log's files are no objects; they lie in the store's directory.
    fn log_file(&self, name: &str) -> Option<PathBuf> {
        let is_log = matches!(Kind::by_name(name), Some(Kind::Lane | Kind::Segment));
        let safe = !name.split('/').any(|segment| segment.is_empty() || segment == "." || segment == "..");
        (is_log && safe && self.uri.scheme == "file")
            .then(|| self.uri.path().ok().map(|path| path.join(name)))?
    }

    /// All objects and log files with their lengths, sorted by name.
    pub fn list(&self) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.env.block_on(self.objects.list(Store::request(), "", after.as_ref(), 1000))?;
            after = page.objects.last().map(|object| object.name.clone());
            found.extend(page.objects.into_iter().map(|object| (object.name.to_string(), object.length)));
            if !page.more || after.is_none() {
                break;
            }
        }
        if self.uri.scheme == "file" {
            self.list_log_files(&mut found)?;
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// A place where nothing lies was misspelled, or is not of this host.
    pub fn check_not_empty(&self) -> Result<()> {
        if self.list()?.is_empty() {
            return Err(Failure::NotFound(format!("nothing lies in {}: check the URI", self.uri.shown())));
        }
        Ok(())
    }

    fn list_log_files(&self, found: &mut Vec<(String, u64)>) -> Result<()> {
        let root = self.uri.path()?;
        for life in entries(&root)? {
            // A link that leads back to itself (ELOOP) is nothing of a database's.
            if std::fs::metadata(&life).is_err_and(|error| error.raw_os_error() == Some(40)) {
                continue;
            }
            for lane in entries(&life.join("log"))? {
                for file in entries(&lane)? {
                    let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
                    match std::fs::metadata(&file) {
                        Ok(metadata) if metadata.is_file() => found.push((name, metadata.len())),
                        Ok(_) => {}
                        // Its writer has freed it meanwhile.
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        Err(error) => {
                            return Err(Error::io(error, "looking at a log's file", file.display()).into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Names under a directory.
    pub fn names_under(&self, prefix: &str) -> Result<Vec<String>> {
        let names: Vec<String> =
            self.list()?.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(prefix)).collect();
        if names.is_empty() {
            return Err(Failure::NotFound(format!("nothing lies under {prefix} in {}", self.uri.shown())));
        }
        Ok(names)
    }

    /// Names of the objects of these `kinds`: in order for those that make the manifest, else as
    /// they lie. Records are named by falling numbers: they come oldest first.
    pub fn names_of(&self, kinds: &[Kind]) -> Result<Vec<String>> {
        let all: Vec<String> = self.list()?.into_iter().map(|(name, _)| name).collect();
        let is_of = |name: &&String, kind: Kind| Kind::by_name(name) == Some(kind);
        if !kinds.contains(&Kind::Record) {
            return Ok(all
                .iter()
                .filter(|name| kinds.iter().any(|kind| is_of(name, *kind)))
                .cloned()
                .collect());
        }
        let mut names = Vec::new();
        for kind in kinds {
            let mut of_kind: Vec<String> = all.iter().filter(|name| is_of(name, *kind)).cloned().collect();
            if matches!(kind, Kind::Record | Kind::Incarnation) {
                of_kind.reverse();
            }
            names.extend(of_kind);
        }
        Ok(names)
    }
}
