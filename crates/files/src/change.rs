//! Changes of names: each is one batch of rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use tombolo::{Batch, Error, ErrorKind, Op, Result};
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::catalog::{Catalog, Node, not_found};
use crate::content::{Counted, File, Growing, LaneTail, State, Tail};
use crate::files::Files;
use crate::kind::FileKind;
use crate::path;
use crate::rows;

/// A name in a directory, and its file; `None` for a directory.
pub type Child = (Vec<u8>, Option<Arc<File>>);

impl Files {
    /// The file at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` of a directory.
    pub fn open(&self, path: &[u8]) -> Result<Arc<File>> {
        self.catalog.lock().file(&path::normal(path)?).cloned()
    }

    /// Whether a file or directory is at `path`.
    pub fn exists(&self, path: &[u8]) -> bool {
        path::normal(path).is_ok_and(|path| {
            let catalog = self.catalog.lock();
            path == b"/" || catalog.nodes.contains_key(&path)
        })
    }

    /// Whether a directory is at `path`.
    pub fn is_directory(&self, path: &[u8]) -> bool {
        path::normal(path).is_ok_and(|path| self.catalog.lock().is_directory(&path))
    }

    /// Names in a directory, with their files; `None` for directories.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn list(&self, directory: &[u8]) -> Result<Vec<Child>> {
        let children = self.catalog.lock().children(&path::normal(directory)?)?;
        let file = |node| match node {
            Node::Directory => None,
            Node::File(file) => Some(file),
        };
        Ok(children.into_iter().map(|(name, node)| (name, file(node))).collect())
    }

    /// Makes an empty file at `path`, in the place of the one that is there. Its kind is that of
    /// its name.
    ///
    /// # Errors
    /// `NotFound` without the directory; `Invalid`; `Fenced` and others of the database.
    pub async fn create(&self, path: &[u8]) -> Result<Arc<File>> {
        let path = path::normal(path)?;
        let kind = FileKind::of(&path);
        self.change(|catalog| self.begin_create(catalog, &path, kind)).await
    }

    /// The file at `path`, or an empty one that is made there.
    ///
    /// # Errors
    /// As [`Files::create`].
    pub async fn open_or_create(&self, path: &[u8]) -> Result<Arc<File>> {
        match self.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.create(path).await,
            opened => opened,
        }
    }

    fn begin_create(
        &self,
        catalog: &mut Catalog,
        path: &[u8],
        kind: FileKind,
    ) -> Result<(Arc<File>, Op<()>)> {
        catalog.check_parent(path)?;
        if catalog.is_directory(path) {
            catalog.file(path)?;
        }
        let tail = match kind {
            FileKind::Record => Tail::Record { bytes: Vec::new(), is_dirty: false },
            FileKind::Object => Tail::Object(Growing::No),
            FileKind::Log | FileKind::Manifest => Tail::Lane(LaneTail {
                tag: self.fresh_tag()?,
                bytes: Counted::new(Vec::new(), &self.lane_memory),
                pending: std::collections::VecDeque::new(),
                place: None,
                is_of_earlier: false,
            }),
        };
        let state = State::new(1, Vec::new(), self.unix_ms(), tail);
        let file = File::new(catalog.next, kind, state);
        let mut batch = Batch::new();
        let writing = self.writing()?;
        batch.put(&writing.names, path, rows::name_value(Some(file.number)));
        batch.put(&writing.inodes, rows::inode_key(file.number), file.state.lock().inode(kind).encode());
        let file = Arc::new(file);
        let replaced = catalog.file(path).ok().cloned();
        let op = self.begin_without(batch, replaced.as_slice())?;
        catalog.next += 1;
        catalog.nodes.insert(path.to_vec(), Node::File(Arc::clone(&file)));
        Ok((file, op))
    }

    /// Begins `batch`, in which each of `files` loses a name, with the rows of those that lose the
    /// last one.
    fn begin_without(&self, mut batch: Batch, files: &[Arc<File>]) -> Result<Op<()>> {
        let writing = self.writing()?;
        for file in files.iter().filter(|file| file.state.lock().links == 1) {
            batch.delete(&writing.inodes, rows::inode_key(file.number));
        }
        let op = self.begin(batch)?;
        for file in files {
            let mut state = file.state.lock();
            state.links -= 1;
            if state.links > 0 {
                continue;
            }
            if let (Some(lane), Tail::Lane(tail)) = (file.kind.lane(), &mut state.tail) {
                writing.lanes[lane].leave(&mut tail.place, &mut tail.is_of_earlier);
            }
            self.forget_objects(state.parts.iter().map(|part| part.object), &Arc::downgrade(file))?;
        }
        Ok(op)
    }

    /// Takes its name from the file at `path`. Who has it open reads on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` of a directory; `Fenced` and others of the database.
    pub async fn delete(&self, path: &[u8]) -> Result<()> {
        let path = path::normal(path)?;
        self.change(|catalog| {
            let file = Arc::clone(catalog.file(&path)?);
            let mut batch = Batch::new();
            batch.delete(&self.writing()?.names, &path);
            let op = self.begin_without(batch, &[file])?;
            catalog.nodes.remove(&path);
            Ok(((), op))
        })
        .await?;
        self.tidy().await
    }

    /// Moves a file or directory to the name `to`, and takes that from the file which had it. A
    /// directory moves with all that it has.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` of a directory that is not empty; `Invalid` of a directory in
    /// the place of a file, or within itself; `Fenced` and others of the database.
    pub async fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let (from, to) = (path::normal(from)?, path::normal(to)?);
        self.change(|catalog| self.begin_rename(catalog, &from, &to)).await?;
        self.tidy().await
    }

    fn begin_rename(&self, catalog: &mut Catalog, from: &[u8], to: &[u8]) -> Result<((), Op<()>)> {
        let node = catalog.nodes.get(from).cloned().ok_or_else(|| not_found(from))?;
        catalog.check_parent(to)?;
        if from == to {
            return Ok(((), Op::ready(Ok(()))));
        }
        let mut moved = vec![(from.to_vec(), to.to_vec(), node.clone())];
        let mut replaced = Vec::new();
        match node {
            Node::File(_) if catalog.is_directory(to) => return Err(not_a_file(to)),
            Node::File(_) => replaced.extend(catalog.file(to).ok().cloned()),
            Node::Directory => {
                if to.starts_with(&path::within(from)) {
                    return Err(Error::new(ErrorKind::Invalid, "a directory cannot move into itself"));
                }
                if catalog.file(to).is_ok() {
                    return Err(Error::new(ErrorKind::Invalid, "a file is where the directory is to be")
                        .object(to.escape_ascii()));
                }
                check_empty(catalog, to)?;
                let below = catalog
                    .below(from)
                    .map(|(path, node)| (path.clone(), [to, &path[from.len()..]].concat(), node.clone()));
                moved.extend(below);
            }
        }
        // Both are names of one file: nothing is to be done, as rename(2) has it.
        if let ([replaced], Node::File(file)) = (&replaced[..], &moved[0].2)
            && Arc::ptr_eq(replaced, file)
        {
            return Ok(((), Op::ready(Ok(()))));
        }
        let mut batch = Batch::new();
        let names = &self.writing()?.names;
        for (index, (from, to, node)) in moved.iter().enumerate() {
            path::normal(to)?;
            batch.delete(names, from);
            batch.put(names, to, rows::name_value(number_of(node)));
            if index == 0 && is_enabled(Mutant::FilesMovedInSteps) {
                drop(self.begin(std::mem::take(&mut batch))?);
            }
        }
        let op = self.begin_without(batch, &replaced)?;
        for (from, _, _) in &moved {
            catalog.nodes.remove(from);
        }
        catalog.nodes.extend(moved.into_iter().map(|(_, to, node)| (to, node)));
        Ok(((), op))
    }

    /// Gives the file at `from` the further name `to`.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `Fenced` and others of the database.
    pub async fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let (from, to) = (path::normal(from)?, path::normal(to)?);
        self.change(|catalog| {
            let file = Arc::clone(catalog.file(&from)?);
            catalog.check_parent(&to)?;
            check_free(catalog, &to)?;
            let mut batch = Batch::new();
            batch.put(&self.writing()?.names, &to, rows::name_value(Some(file.number)));
            let op = self.begin(batch)?;
            file.state.lock().links += 1;
            catalog.nodes.insert(to.clone(), Node::File(file));
            Ok(((), op))
        })
        .await
    }

    /// Makes a directory, and those that it lies in.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` below a file; `Fenced` and others of the database.
    pub async fn create_directory(&self, path: &[u8]) -> Result<()> {
        let path = path::normal(path)?;
        self.change(|catalog| {
            if catalog.is_directory(&path) {
                return Err(exists(&path));
            }
            check_free(catalog, &path)?;
            let (mut missing, mut above) = (BTreeSet::from([path.clone()]), path::parent(&path));
            while let Some(parent) = above.filter(|parent| !catalog.is_directory(parent)) {
                if catalog.file(parent).is_ok() {
                    return Err(not_a_directory(parent));
                }
                missing.insert(parent.to_vec());
                above = path::parent(parent);
            }
            let mut batch = Batch::new();
            for directory in &missing {
                batch.put(&self.writing()?.names, directory, rows::name_value(None));
            }
            let op = self.begin(batch)?;
            catalog.nodes.extend(missing.into_iter().map(|path| (path, Node::Directory)));
            Ok(((), op))
        })
        .await
    }

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` when something is in it; `Fenced` and others of the database.
    pub async fn delete_directory(&self, path: &[u8]) -> Result<()> {
        let path = path::normal(path)?;
        self.change(|catalog| {
            match catalog.nodes.get(&path) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(not_a_directory(&path)),
                None => return Err(not_found(&path)),
            }
            check_empty(catalog, &path)?;
            let mut batch = Batch::new();
            batch.delete(&self.writing()?.names, &path);
            let op = self.begin(batch)?;
            catalog.nodes.remove(&path);
            Ok(((), op))
        })
        .await
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        u64::try_from(self.env.unix_time().as_millis()).unwrap_or(u64::MAX)
    }
}

fn number_of(node: &Node) -> Option<u64> {
    match node {
        Node::Directory => None,
        Node::File(file) => Some(file.number),
    }
}

fn exists(path: &[u8]) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("{} exists", path.escape_ascii()))
}

fn not_a_directory(path: &[u8]) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is a file, and no directory", path.escape_ascii()))
}

fn not_a_file(path: &[u8]) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is a directory", path.escape_ascii()))
}

fn check_free(catalog: &Catalog, path: &[u8]) -> Result<()> {
    if catalog.nodes.contains_key(path) || path == b"/" { Err(exists(path)) } else { Ok(()) }
}

fn check_empty(catalog: &Catalog, directory: &[u8]) -> Result<()> {
    match catalog.below(directory).next() {
        None => Ok(()),
        Some((path, _)) => Err(Error::new(ErrorKind::AlreadyExists, "a directory that is not empty")
            .object(directory.escape_ascii())
            .found(path.escape_ascii())),
    }
}
