//! Immutable named objects.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;

use crate::facts::Fact;
use crate::{Error, ErrorKind, Meter, Placement, Request, Result, StorePerformance, Survival};

pub mod location;

use location::StoreLocation;

/// Most bytes of an object name.
pub const OBJECT_NAME_BYTES_MAX: usize = 512;

/// Most bytes of an object put in one piece: the largest batch, as a log entry, fits.
pub const PUT_BYTES_MAX: usize = 128 << 20;

/// Refuses a put of too many bytes in one piece.
///
/// # Errors
/// `Invalid` beyond [`PUT_BYTES_MAX`].
pub fn check_put(object: impl fmt::Display, bytes: usize) -> Result<()> {
    if bytes <= PUT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{bytes} bytes put in one piece; {PUT_BYTES_MAX} are the most");
    Err(Error::new(ErrorKind::Invalid, message).object(object))
}

/// A name: segments of `a–z 0–9 . _ - ~` and upper-case letters, joined by `/`. No segment is
/// empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// Checks a name.
    ///
    /// # Errors
    /// `Invalid` when it is not a name.
    pub fn new(name: impl AsRef<str>) -> Result<ObjectName> {
        let name = name.as_ref();
        if name.len() > OBJECT_NAME_BYTES_MAX || !name.split('/').all(is_segment) {
            return Err(Error::new(ErrorKind::Invalid, format!("{name:?} is no object name"))
                .advice("use letters, digits and . _ - ~ in segments joined by /, 512 bytes at most"));
        }
        Ok(ObjectName(name.into()))
    }

    /// Whether any name may begin with `prefix`. A service that is asked to list others may refuse
    /// (MinIO `../`), where the answer is known: nothing.
    ///
    /// ```
    /// # use tombolo_storage::ObjectName;
    /// assert!(["", "a", "a/", "a/b", ".", "a/..", ".../"].into_iter().all(ObjectName::may_begin_with));
    /// assert!(!["/", "../", "./a", "a//b", "a/../b", "a b", "\u{7f}"].into_iter().any(ObjectName::may_begin_with));
    /// ```
    pub fn may_begin_with(prefix: &str) -> bool {
        let (whole, begun) =
            prefix.rsplit_once('/').map_or((None, prefix), |(whole, begun)| (Some(whole), begun));
        prefix.len() <= OBJECT_NAME_BYTES_MAX
            && whole.is_none_or(|whole| whole.split('/').all(is_segment))
            && begun.bytes().all(is_of_names)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_of_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-~".contains(&byte)
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(is_of_names)
}

impl std::borrow::Borrow<str> for ObjectName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// How a put-if-absent ended when its outcome is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The name was free and now holds the bytes, durably.
    Created,
    /// The name was taken; what it holds is unchanged (it may be the same bytes, put by an earlier
    /// attempt).
    Exists,
}

/// An object's name and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The name.
    pub name: ObjectName,
    /// Length in bytes.
    pub length: u64,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Names in ascending byte order.
    pub objects: Vec<ObjectInfo>,
    /// Whether more names follow: list again, starting after the last.
    pub more: bool,
}

/// What a store says of itself where a wrong answer loses data. Every store says each of them:
/// there is no default, and a layer hands on what the store below it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTraits {
    /// Whether put-if-absent must be tried by many at once before a database is created here
    /// ([`crate::probe::exclusive`]): stores that others operate, of which some take the condition
    /// and do not keep it.
    pub must_prove_put_if_absent: bool,
    /// Whether even a list of one name may be put together from several moments, so that it misses
    /// a name that was deleted meanwhile together with the one that took its place: stores that
    /// others operate, of which some walk a directory and then look at each file.
    pub lists_may_walk: bool,
}

/// A store of immutable named objects. All methods are safe to call from many tasks.
///
/// What every backend promises, and its conformance suite checks:
/// 1. An object appears whole or not at all, and is durable when its creation returns.
/// 2. Of several puts of one absent name, exactly one is `Created`.
/// 3. A read or list begun after a creation returned sees it.
/// 4. A list shows every matching name, up to its limit, that was there for the whole call. A list
///    of **one** name (`limit` = 1) is, unless [`StoreTraits::lists_may_walk`], one atomic answer:
///    the smallest matching name at one moment within the call. This holds for prefixes after which
///    no matching name has a further `/`; a prefix that spans directories may be walked, in
///    ascending order. Longer pages may be put together from several moments.
/// 5. `OutcomeUnknown` is the only error after which a creation may still land, now or at any later
///    time.
/// 6. What a list shows is as durable as if its creation had returned, and a deletion that returned
///    stays: what was concluded from an answer of the store is not undone by a loss of power.
///
/// Names form a tree: no object's name may be a directory of another's. Stores of directories
/// refuse it as `Invalid`.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Begins an object whose bytes come in pieces. Nothing is visible before
    /// [`ObjectWriter::finish`]; the name must be fresh.
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>>;

    /// Puts a whole object if its name is free: the one atomic primitive. At most [`PUT_BYTES_MAX`]
    /// bytes.
    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>>;

    /// Reads a range; cut at the object's end. An empty range past the end is empty.
    ///
    /// # Errors
    /// `NotFound` when there is no such object.
    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>>;

    /// Shows a range whose bytes the host has in its memory, without waiting; cut at the object's
    /// end. `false`: it did not, for whatever reason, and [`ObjectStore::read`] is to be asked.
    /// Cheaper than a read where most ranges are there; a store that is far away has none.
    fn with_held(
        &self,
        _request: Request,
        _name: &ObjectName,
        _range: Range<u64>,
        _show: &mut dyn FnMut(&[u8]),
    ) -> bool {
        false
    }

    /// Reads several ranges of one object, in the order given, with as few requests as the store
    /// allows.
    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>>;

    /// Length of an object; `NotFound` when there is none.
    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>>;

    /// Lists at most `limit` names that begin with `prefix` (which may end inside a segment; empty
    /// lists all) and are greater than `after`, in ascending byte order. See promise 4 on
    /// atomicity.
    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>>;

    /// Deletes an object; deleting what does not exist succeeds.
    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>>;

    /// Gives the bytes of `from` the further name `to` without copying them where the store can.
    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>>;

    /// Where an object's bytes lie, if another store may take them over by reference: see
    /// [`ObjectStore::adopt`].
    fn place(&self, _name: &ObjectName) -> Option<String> {
        None
    }

    /// Gives an object of another store a name in this one without copying its bytes. `None`: this
    /// store cannot, and nothing was done.
    fn adopt<'a>(
        &'a self,
        _request: Request,
        _place: &'a str,
        _to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Removes what creations left behind that will never finish and that no list shows: temporary
    /// files of dead processes, abandoned uploads. Never touches what a live process is writing.
    /// Returns how many it removed.
    fn sweep(&self, _request: Request) -> BoxFuture<'_, Result<u64>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// What the store offers, judged, for `tombolo doctor`. Changes nothing.
    fn facts(&self, _request: Request) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// How reads fare, where a layer measures it: at stores that are far away.
    fn performance(&self) -> Option<StorePerformance> {
        None
    }

    /// What the engine must know of the store for its protocols to be safe. It never changes.
    fn traits(&self) -> StoreTraits;

    /// What it was asked for since it was opened, where it or a layer counts that. Every store that
    /// comes out of a registry is counted.
    fn meter(&self) -> Option<&Arc<Meter>> {
        None
    }

    /// Where it lies among others, by which a database that names another's tables finds them.
    /// Every store that comes out of a registry has one.
    fn location(&self) -> Option<&StoreLocation> {
        None
    }

    /// What objects survive here, for `tombolo explain`. Objects are not accepted before they are
    /// durable, so that both say the same.
    fn survival(&self) -> Survival;

    /// The store, as a person would name it, for messages.
    fn describe(&self) -> String;
}

/// An object that is being written. Dropping it before [`ObjectWriter::finish`] leaves nothing that
/// a list shows.
pub trait ObjectWriter: Send + fmt::Debug {
    /// Appends bytes. They may be held in memory up to a bounded amount.
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>>;
    /// Makes the object durable and visible. `AlreadyExists` when the name turned out to be taken.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>>;
}

/// Reads a whole object.
///
/// # Errors
/// As [`ObjectStore::read`]; `Corrupt` when it is longer than `bytes_max`.
pub async fn read_whole(
    store: &dyn ObjectStore,
    request: Request,
    name: &ObjectName,
    bytes_max: u64,
) -> Result<Bytes> {
    let bytes = store.read(request, name, 0..bytes_max.saturating_add(1)).await?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::corrupt(name, bytes_max, format!("at most {bytes_max} bytes"), "more"));
    }
    Ok(bytes)
}
