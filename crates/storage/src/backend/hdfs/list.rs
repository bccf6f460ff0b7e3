//! Lists: an ascending walk over directories, made durable before it is believed.
//!
//! Atomic: a NameNode answers a directory in ascending order of names, a page (dfs.ls.limit, 1000
//! entries) at a time, each page under its lock. Names that match a prefix within one directory lie
//! side by side. So the page that shows the first of them, or shows that there is none, shows at
//! its one moment all that lies behind the end of the page before, which lies before all that
//! match: the smallest of them, at one moment, whatever happened between the pages. Longer lists
//! are put together from a moment for each page.
//!
//! Durable: all that the NameNode showed, since the store settles behind the walk.
//!
//! A walk begins at the beginning of a directory, since the client offers no other way: a page that
//! begins after a name costs the pages before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tombolo_env::BoxFuture;

use super::failure::Failure;
use super::{HdfsObjectStore, client::Connected};
use crate::backend::may_match;
use crate::backend::remote::Effect;
use crate::{Listed, ObjectInfo, ObjectName, Request, Result};

/// Most names of one list.
const LIST_PAGE_MAX: usize = 4096;

/// Directories below one another.
const DEPTH_MAX: usize = 256;

/// An entry of a directory: its name, to which a directory's `/` is added, and its length.
type Entry = (String, u64);

/// Puts the entries of a directory, which come in the order of their bare names, into the order of
/// the names of objects: what lies in the directory `a` comes behind `a-b` and `a.b`.
#[derive(Debug, Default)]
struct Order {
    /// Directories whose turn has not come.
    waiting: BinaryHeap<Reverse<String>>,
}

impl Order {
    /// What can be shown once `entry` was met: directories that come before it, then, if it is no
    /// directory, itself.
    fn met(&mut self, entry: Entry) -> Vec<Entry> {
        let mut due = Vec::new();
        while self.waiting.peek().is_some_and(|Reverse(first)| *first < entry.0) {
            due.extend(self.waiting.pop().map(|Reverse(first)| (first, 0)));
        }
        match entry.0.ends_with('/') {
            true => self.waiting.push(Reverse(entry.0)),
            false => due.push(entry),
        }
        due
    }

    /// The entries left when the last one was met.
    fn rest(self) -> Vec<Entry> {
        // The heap gives the greatest first, which is the smallest name, as they are reversed.
        self.waiting.into_sorted_vec().into_iter().rev().map(|Reverse(name)| (name, 0)).collect()
    }
}

/// Whether nothing that matches comes behind a name of the same directory, whose entries come in
/// the order of their bare names.
fn is_behind(name: &str, prefix: &str) -> bool {
    name > prefix && !name.starts_with(prefix)
}

struct Walk<'a> {
    store: &'a HdfsObjectStore,
    connected: &'a Connected,
    prefix: &'a str,
    after: Option<&'a str>,
    /// Names wanted, one beyond the list so that `more` is known.
    wanted: usize,
    found: Vec<ObjectInfo>,
}

impl Walk<'_> {
    /// Walks the directory whose objects' names begin with `base` (empty, or ending in `/`).
    fn directory<'b>(
        &'b mut self,
        base: String,
        depth: usize,
    ) -> BoxFuture<'b, std::result::Result<(), Failure>> {
        Box::pin(async move {
            if depth > DEPTH_MAX {
                return Err(Failure::too_deep());
            }
            let path = self.store.place().path(&base);
            let path = path.trim_end_matches('/').to_owned();
            let entries = self.connected.client.list_status_iter(&path, false);
            let mut order = Order::default();
            loop {
                let next = self
                    .store
                    .cluster()
                    .wait(self.connected, 1, async { entries.next().await.transpose() })
                    .await;
                let status = match next {
                    Ok(Some(status)) => status,
                    Ok(None) => break,
                    // Deleted meanwhile, or nothing was ever put.
                    Err(failure) if failure.is_no_file => return Ok(()),
                    Err(failure) => return Err(failure),
                };
                // Of a file itself there is one entry, which is no name in it.
                let Some(name) = status.path.strip_prefix(&path).and_then(|name| name.strip_prefix('/'))
                else {
                    continue;
                };
                let slash = if status.isdir { "/" } else { "" };
                let is_last = is_behind(&format!("{base}{name}"), self.prefix);
                for due in order.met((format!("{name}{slash}"), status.length as u64)) {
                    self.entry(&base, due, depth).await?;
                }
                if is_last || self.is_full() {
                    break;
                }
            }
            for due in order.rest() {
                self.entry(&base, due, depth).await?;
            }
            Ok(())
        })
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.wanted
    }

    async fn entry(
        &mut self,
        base: &str,
        (entry, length): Entry,
        depth: usize,
    ) -> std::result::Result<(), Failure> {
        let name = format!("{base}{entry}");
        if self.is_full() || !may_match(&name, self.prefix, self.after) {
            return Ok(());
        }
        match entry.strip_suffix('/') {
            // What no object can be called, the directory of temporary files among it, is not
            // looked at.
            Some(directory) if ObjectName::new(directory).is_ok() => self.directory(name, depth + 1).await,
            Some(_) => Ok(()),
            None => {
                self.found.extend(ObjectName::new(&name).ok().map(|name| ObjectInfo { name, length }));
                Ok(())
            }
        }
    }
}

impl HdfsObjectStore {
    async fn walk(
        &self,
        prefix: &str,
        after: Option<&ObjectName>,
        limit: usize,
    ) -> std::result::Result<Listed, Failure> {
        let base = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
        let connected = self.cluster().connected();
        let after = after.map(ObjectName::as_str);
        let mut walk =
            Walk { store: self, connected: &connected, prefix, after, wanted: limit + 1, found: Vec::new() };
        walk.directory(base.to_owned(), 0).await?;
        let mut objects = walk.found;
        let more = objects.len() > limit;
        objects.truncate(limit);
        self.settle().await?;
        Ok(Listed { objects, more })
    }

    pub(super) async fn list_names(
        &self,
        request: Request,
        prefix: &str,
        after: Option<&ObjectName>,
        limit: usize,
    ) -> Result<Listed> {
        const DOING: &str = "listing objects";
        let limit = limit.min(LIST_PAGE_MAX);
        let base = prefix.rfind('/').map_or("", |slash| &prefix[..slash]);
        if prefix.contains('/') && ObjectName::new(base).is_err() {
            // No object has such a name; a prefix that goes up (`../`) ends here too.
            return Ok(Listed { objects: Vec::new(), more: false });
        }
        let (store, prefix, after) = (self.clone(), prefix.to_owned(), after.cloned());
        let work = async move {
            let listed = store.walk(&prefix, after.as_ref(), limit).await;
            listed.map_err(|failure| failure.error(DOING, &store.place().shown(&prefix)))
        };
        self.run(request, DOING, Effect::Nothing, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a directory as its entries come one by one: `a/` for the directory `a`.
    fn ordered(entries: &[&str]) -> Vec<String> {
        let mut bare: Vec<&str> = entries.to_vec();
        bare.sort_unstable_by_key(|entry| entry.trim_end_matches('/'));
        let mut order = Order::default();
        let mut shown: Vec<Entry> = Vec::new();
        for entry in bare {
            shown.extend(order.met((entry.to_owned(), 1)));
        }
        shown.extend(order.rest());
        shown.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_directory_comes_where_what_lies_in_it_does() {
        for entries in [
            &["a/", "a-b", "a.b", "a0", "b/", "b-/", "b./", "b0/", "c"][..],
            &["x-y-/", "x-/", "x/", "x-y/", "x-y.z", "x"],
            &["only/"],
            &[],
        ] {
            let mut expected: Vec<&str> = entries.to_vec();
            expected.sort_unstable();
            assert_eq!(ordered(entries), expected);
        }
    }

    /// A walk may end where this says so, for every prefix: what comes later in the order of bare
    /// names never matches.
    #[test]
    fn a_walk_ends_only_behind_all_that_match() {
        let names = ["a", "a-b", "a.b", "a0", "b", "b-", "b0", "ba", "c"];
        for prefix in ["", "a", "a-", "b", "b0", "bb", "c", "d"] {
            for (index, name) in names.iter().enumerate() {
                if is_behind(name, prefix) {
                    assert!(
                        names[index..].iter().all(|later| !later.starts_with(prefix)),
                        "{prefix} ended at {name}"
                    );
                }
            }
        }
        assert!(is_behind("b", "a") && !is_behind("a", "a") && !is_behind("a0", "a") && !is_behind("a", "b"));
    }
}
