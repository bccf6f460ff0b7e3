//! Names: which file or directory each path leads to. In memory, and pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo::{Error, ErrorKind, Result};

use crate::content::File;
use crate::path;

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Directory,
    File(Arc<File>),
}

/// All names, and the next number for a file.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) nodes: BTreeMap<Vec<u8>, Node>,
    /// Above every number with a row.
    pub(crate) next: u64,
}

pub(crate) fn not_found(path: &[u8]) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no {}", path.escape_ascii()))
}

fn wrong(path: &[u8], what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is {what}", path.escape_ascii()))
}

impl Catalog {
    /// # Errors
    /// `NotFound`; `Invalid` of a directory.
    pub(crate) fn file(&self, path: &[u8]) -> Result<&Arc<File>> {
        match self.nodes.get(path) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory) => Err(wrong(path, "a directory")),
            None => Err(not_found(path)),
        }
    }

    pub(crate) fn is_directory(&self, path: &[u8]) -> bool {
        path == b"/" || matches!(self.nodes.get(path), Some(Node::Directory))
    }

    /// # Errors
    /// `NotFound` where the directory that `path` lies in is not there.
    pub(crate) fn check_parent(&self, path: &[u8]) -> Result<()> {
        match path::parent(path) {
            Some(parent) if self.is_directory(parent) => Ok(()),
            Some(parent) => Err(not_found(parent).advice("make the directory first")),
            None => Err(wrong(path, "the root")),
        }
    }

    /// All that lies in a directory, at any depth.
    pub(crate) fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Node)> {
        let prefix = path::within(directory);
        self.nodes.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
    }

    /// Names of what lies in a directory itself.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn children(&self, directory: &[u8]) -> Result<Vec<(Vec<u8>, Node)>> {
        if !self.is_directory(directory) {
            return Err(not_found(directory));
        }
        let start = path::within(directory).len();
        let below = self.below(directory).map(|(path, node)| (&path[start..], node));
        Ok(below
            .filter(|(name, _)| !name.contains(&b'/'))
            .map(|(name, node)| (name.to_vec(), node.clone()))
            .collect())
    }
}
