//! Finds databases by the names of their objects, as a list in ascending order shows them.
//!
//! Names with a common directory follow each other. So only the directories of the newest name are
//! undecided, and a bucket with billions of objects that belong to no database takes no more memory
//! than the databases' own names.

use std::collections::BTreeSet;

/// What lies in a database's `incarnation/` has 16 hexadecimal digits.
const INCARNATION_DIGITS: usize = 16;

/// A directory that names may still come of.
#[derive(Debug, Default)]
struct Open {
    /// Ends in a slash, or is empty.
    directory: String,
    /// Names in it so far that lie in no database below it.
    names: u64,
    is_database: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Roots {
    found: BTreeSet<String>,
    /// Invariant: each lies in the one before; the first is the root.
    open: Vec<Open>,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { found: BTreeSet::new(), open: vec![Open::default()] }
    }
}

impl Roots {
    /// Takes in the next name of the list.
    pub fn take(&mut self, name: &str) {
        while self.open.len() > 1 && self.open.last().is_some_and(|open| !name.starts_with(&open.directory)) {
            self.close();
        }
        let known = self.open.last().map_or(0, |open| open.directory.len());
        for (at, _) in name.match_indices('/').filter(|(at, _)| *at >= known) {
            self.open.push(Open { directory: name[..=at].to_owned(), ..Open::default() });
        }
        if let Some(open) = self.open.last_mut() {
            open.names += 1;
        }
        if let Some(directory) = database_of(name)
            && let Some(open) = self.open.iter_mut().find(|open| open.directory == directory)
        {
            open.is_database = true;
        }
    }

    /// No more names come of the innermost directory.
    fn close(&mut self) {
        let Some(Open { directory, names, is_database }) = self.open.pop() else { return };
        if is_database {
            self.found.insert(directory);
        } else if let Some(outer) = self.open.last_mut() {
            outer.names += names;
        }
    }

    /// The directories that hold databases, each ending in a slash or empty; and how many names lie
    /// in none of them.
    pub fn finish(mut self) -> (BTreeSet<String>, u64) {
        while self.open.len() > 1 {
            self.close();
        }
        let (outside, is_database) =
            self.open.first().map_or((0, false), |root| (root.names, root.is_database));
        self.close();
        (self.found, if is_database { 0 } else { outside })
    }
}

/// The database whose life this object begins.
fn database_of(name: &str) -> Option<&str> {
    let (directory, digits) = name.rsplit_once('/')?;
    let database = directory
        .strip_suffix("incarnation")
        .filter(|database| database.is_empty() || database.ends_with('/'))?;
    (digits.len() == INCARNATION_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then_some(database)
}

#[cfg(test)]
mod tests;
