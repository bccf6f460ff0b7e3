//! The keyspaces of an open database, as writes and reads find them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use arc_swap::ArcSwap;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::options::KeyspaceOptions;

/// A keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceInfo {
    pub(crate) id: u32,
    pub(crate) name: String,
    options: ArcSwap<KeyspaceOptions>,
    /// That of `options`, for reads: one load.
    value_alignment: AtomicU16,
    dropped: AtomicBool,
}

impl KeyspaceInfo {
    pub(crate) fn new(id: u32, name: &str, options: KeyspaceOptions) -> Arc<KeyspaceInfo> {
        Arc::new(KeyspaceInfo {
            id,
            name: name.to_owned(),
            value_alignment: AtomicU16::new(options.value_alignment),
            options: ArcSwap::from_pointee(options),
            dropped: AtomicBool::new(false),
        })
    }

    /// What tables made from now on follow.
    pub(crate) fn options(&self) -> Arc<KeyspaceOptions> {
        self.options.load_full()
    }

    pub(crate) fn set_options(&self, options: KeyspaceOptions) {
        self.value_alignment.store(options.value_alignment, Ordering::Relaxed);
        self.options.store(Arc::new(options));
    }

    /// Where values that reads give begin.
    #[inline]
    pub(crate) fn value_alignment(&self) -> usize {
        self.value_alignment.load(Ordering::Relaxed).into()
    }

    /// # Errors
    /// `NotFound` when it was dropped.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) { self.gone() } else { Ok(()) }
    }

    #[cold]
    fn gone(&self) -> Result<()> {
        Err(Error::new(ErrorKind::NotFound, format!("keyspace {:?} was dropped", self.name)))
    }
}

/// Changed only in the commit section of the main stream.
#[derive(Debug, Default)]
pub(crate) struct Catalog(ArcSwap<BTreeMap<u32, Arc<KeyspaceInfo>>>);

impl Catalog {
    pub(crate) fn insert(&self, keyspace: &Arc<KeyspaceInfo>) {
        let mut more = (**self.0.load()).clone();
        more.insert(keyspace.id, Arc::clone(keyspace));
        self.0.store(Arc::new(more));
    }

    pub(crate) fn remove(&self, id: u32) {
        let mut fewer = (**self.0.load()).clone();
        if let Some(keyspace) = fewer.remove(&id) {
            keyspace.dropped.store(true, Ordering::Release);
        }
        self.0.store(Arc::new(fewer));
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<Arc<KeyspaceInfo>> {
        self.0.load().get(&id).cloned()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<KeyspaceInfo>> {
        self.0.load().values().find(|keyspace| keyspace.name == name).cloned()
    }

    /// All, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceInfo>> {
        let mut all: Vec<_> = self.0.load().values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}
