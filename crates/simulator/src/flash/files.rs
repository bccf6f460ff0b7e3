//! A file system on a translation layer, as far as the layer sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Ftl, PAGE_BYTES, Wear};

/// Pages of the journal that a commit takes: a descriptor, what changed, the commit.
const COMMIT_PAGES: u32 = 3;
/// The journal is so manieth part of the device.
pub const JOURNAL_PART: u32 = 32;

/// A file: where its pages lie, and which of them the device was not given.
#[derive(Debug, Default)]
struct Content {
    names: u32,
    pages: BTreeMap<u64, u32>,
    dirty: BTreeSet<u64>,
}

/// A file system on flash.
#[derive(Debug)]
pub struct FileSystemOnFlash {
    ftl: Ftl,
    discards: bool,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// What paths name; and named when a file was opened.
    names: BTreeMap<PathBuf, u64>,
    opened: BTreeMap<PathBuf, u64>,
    is_used: Vec<bool>,
    used: u32,
    used_most: u32,
    /// Where the next page is looked for.
    cursor: u32,
    journal_pages: u32,
    journal_at: u32,
    /// Names or lengths changed since the last commit.
    is_changed: bool,
}

impl FileSystemOnFlash {
    /// An empty one; `discards` says whether the device is told of deleted files.
    pub fn new(ftl: Ftl, discards: bool) -> FileSystemOnFlash {
        let pages = ftl.pages();
        let journal_pages = (pages / JOURNAL_PART).max(COMMIT_PAGES);
        let mut is_used = vec![false; pages as usize];
        is_used[..journal_pages as usize].fill(true);
        FileSystemOnFlash {
            ftl,
            discards,
            files: BTreeMap::new(),
            next_file: 0,
            names: BTreeMap::new(),
            opened: BTreeMap::new(),
            is_used,
            used: journal_pages,
            used_most: journal_pages,
            cursor: journal_pages,
            journal_pages,
            journal_at: 0,
            is_changed: false,
        }
    }

    /// What the device did.
    pub fn wear(&self) -> Wear {
        self.ftl.wear()
    }

    /// The most of the device that was used at once, from 0 to 1.
    pub fn used_most(&self) -> f64 {
        f64::from(self.used_most) / f64::from(self.ftl.pages())
    }

    /// The most bytes that files took at once.
    pub fn data_most_bytes(&self) -> u64 {
        u64::from(self.used_most - self.journal_pages) * PAGE_BYTES
    }

    fn file(&self, path: &Path) -> Option<u64> {
        self.names.get(path).or_else(|| self.opened.get(path)).copied()
    }

    /// A file is made, or emptied.
    pub fn create(&mut self, path: &Path) {
        self.remove(path);
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, Content { names: 1, ..Content::default() });
        self.names.insert(path.to_path_buf(), file);
        self.opened.insert(path.to_path_buf(), file);
        self.is_changed = true;
    }

    /// A file gets one more name.
    pub fn link(&mut self, from: &Path, to: &Path) {
        let Some(file) = self.file(from) else { return };
        self.remove(to);
        self.names.insert(to.to_path_buf(), file);
        self.files.entry(file).or_default().names += 1;
        self.is_changed = true;
    }

    /// A file gets another name.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        if from != to {
            self.link(from, to);
            self.remove(from);
        }
    }

    /// A name goes, and with the last one its file.
    pub fn remove(&mut self, path: &Path) {
        let Some(file) = self.names.remove(path) else { return };
        self.is_changed = true;
        let content = self.files.entry(file).or_default();
        content.names = content.names.saturating_sub(1);
        if content.names == 0 {
            let content = self.files.remove(&file).unwrap_or_default();
            self.opened.retain(|_, opened| *opened != file);
            content.pages.values().for_each(|page| self.give_back(*page));
        }
    }

    /// A file is cut, or grows by zeros that take no room.
    pub fn set_length(&mut self, path: &Path, length: u64) {
        let Some(file) = self.file(path) else { return };
        let Some(content) = self.files.get_mut(&file) else { return };
        let cut = content.pages.split_off(&length.div_ceil(PAGE_BYTES));
        content.dirty.split_off(&length.div_ceil(PAGE_BYTES));
        cut.values().for_each(|page| self.give_back(*page));
        self.is_changed = true;
    }

    fn give_back(&mut self, page: u32) {
        self.is_used[page as usize] = false;
        self.used -= 1;
        if self.discards {
            self.ftl.discard(page);
        }
    }

    /// Bytes come into memory.
    pub fn write(&mut self, path: &Path, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        if self.file(path).is_none() {
            self.create(path);
        }
        let Some(content) = self.file(path).and_then(|file| self.files.get_mut(&file)) else { return };
        content.dirty.extend(offset / PAGE_BYTES..=(offset + length - 1) / PAGE_BYTES);
    }

    /// What of a file lies in memory alone goes to the device; returns how long that takes.
    pub fn write_out(&mut self, path: &Path) -> Duration {
        let Some(file) = self.file(path) else { return Duration::ZERO };
        let Some(content) = self.files.get_mut(&file) else { return Duration::ZERO };
        let dirty = std::mem::take(&mut content.dirty);
        let mut took = Duration::ZERO;
        for number in dirty {
            let held = self.files.get(&file).and_then(|content| content.pages.get(&number).copied());
            let page = held.unwrap_or_else(|| {
                let page = self.allocate();
                self.files.entry(file).or_default().pages.insert(number, page);
                page
            });
            took += self.ftl.write(page);
        }
        took
    }

    /// A file is durable, or a directory; returns how long that takes.
    pub fn sync(&mut self, path: &Path) -> Duration {
        let mut took = self.write_out(path);
        if std::mem::take(&mut self.is_changed) {
            for _ in 0..COMMIT_PAGES {
                took += self.ftl.write(self.journal_at);
                self.journal_at = (self.journal_at + 1) % self.journal_pages;
            }
        }
        took + self.ftl.sync()
    }

    /// The next free page.
    ///
    /// # Panics
    /// When the device is full: a trial is made so that it is not.
    fn allocate(&mut self) -> u32 {
        let pages = self.ftl.pages();
        for _ in 0..pages {
            let page = self.cursor;
            self.cursor = if page + 1 == pages { self.journal_pages } else { page + 1 };
            if !std::mem::replace(&mut self.is_used[page as usize], true) {
                self.used += 1;
                self.used_most = self.used_most.max(self.used);
                self.is_changed = true;
                return page;
            }
        }
        panic!("the device of the trial is full: give it more bytes");
    }
}
