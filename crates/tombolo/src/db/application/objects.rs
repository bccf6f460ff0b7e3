//! An application's objects.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_storage::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectWriter, Placement, Priority, Purpose,
    PutOutcome, Request, Result, object::PUT_BYTES_MAX,
};

use crate::db::Handle;
use crate::deadline::{self, Limit};
use crate::engine::{Health, Store};
use crate::manifest::driver::io::Io;
use crate::manifest::names;
use crate::op::Op;

/// The name of an application's object: of the epoch that made it, never used again. As text, 33
/// characters, it goes into a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationObject {
    pub(crate) epoch: u64,
    pub(crate) random: u64,
}

impl ApplicationObject {
    /// The epoch whose writer made it.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// Its two numbers, for a row that has no room for the text.
    pub fn to_parts(self) -> (u64, u64) {
        (self.epoch, self.random)
    }

    /// The name of these two numbers.
    pub fn from_parts(epoch: u64, random: u64) -> ApplicationObject {
        ApplicationObject { epoch, random }
    }
}

impl fmt::Display for ApplicationObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{:016x}", self.epoch, self.random)
    }
}

impl FromStr for ApplicationObject {
    type Err = Error;

    fn from_str(text: &str) -> Result<ApplicationObject> {
        let wrong =
            || Error::new(ErrorKind::Invalid, format!("{text:?} is no name of an application's object"));
        names::parse_application_text(text)
            .map(|(epoch, random)| ApplicationObject { epoch, random })
            .ok_or_else(wrong)
    }
}

/// An application's objects, beside the database's. Cheap to clone.
///
/// An object counts once its name was written, durably, to a keyspace: that write is fenced, the
/// putting of the object need not be. Before an object is deleted its name is deleted there,
/// durably. So a successor finds every object that a keyspace names; those that none names, of
/// epochs before its own, are left by processes that ended in between, and may be deleted.
///
/// ```no_run
/// # fn main() -> tombolo::Result<()> {
/// let db = tombolo::Db::builder("s3://bucket/orders").open().wait()?;
/// let (files, keys) = (db.application_objects(), db.default_keyspace());
/// let invoice = files.put("%PDF-1.7 …").wait()?;
/// keys.put("invoice/17", invoice.to_string()).wait()?;
/// assert!(files.read(invoice, 0..4).wait()?.starts_with(b"%PDF"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApplicationObjects {
    handle: Arc<Handle>,
    limit: Limit,
    priority: Priority,
}

impl fmt::Debug for ApplicationObjects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ApplicationObjects")
            .field("place", &self.health().place)
            .field("priority", &self.priority)
            .finish()
    }
}

/// An object that is being written: see [`ApplicationObjects::create`]. Dropped before it is
/// finished, it leaves nothing.
pub struct ApplicationObjectWriter {
    object: ApplicationObject,
    writer: Box<dyn ObjectWriter>,
}

impl fmt::Debug for ApplicationObjectWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ApplicationObjectWriter")
            .field("object", &self.object)
            .finish_non_exhaustive()
    }
}

impl ApplicationObjectWriter {
    /// The name that the object will have.
    pub fn object(&self) -> ApplicationObject {
        self.object
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Those of the store: the object is to be given up.
    pub async fn append(&mut self, bytes: impl Into<Bytes> + Send) -> Result<()> {
        self.writer.append(bytes.into()).await
    }

    /// Makes the object durable, and gives its fresh name and its length.
    ///
    /// # Errors
    /// Those of the store: there may be an object that nobody names.
    pub async fn finish(self) -> Result<(ApplicationObject, u64)> {
        let info = self.writer.finish().await?;
        Ok((self.object, info.length))
    }
}

impl ApplicationObjects {
    pub(crate) fn new(handle: &Arc<Handle>, limit: Limit) -> ApplicationObjects {
        ApplicationObjects { handle: Arc::clone(handle), limit, priority: Priority::Normal }
    }

    fn health(&self) -> &Health {
        &self.handle.engine
    }

    /// The same objects, whose requests go before or after others of the database: reads of keys
    /// and the log are `High`, flushes `Normal`, compaction is `Low`. Default: `Normal`.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> ApplicationObjects {
        self.priority = priority;
        self
    }

    /// The same objects, of which every verb ends within `limit` of its call: see
    /// [`crate::Keyspace::within`]. Requests carry the deadline to the store; one that has gone out
    /// may still take effect.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> ApplicationObjects {
        self.limit = Limit(Some(limit));
        self
    }

    fn limited<T>(&self, what: &'static str, start: impl FnOnce() -> Op<T>) -> Op<T> {
        Op::limited(self.limit, &self.health().env, what, start)
    }

    /// A request, with the deadline of the operation that makes it.
    fn request(&self) -> Request {
        let request =
            Request::new(Purpose::Application, self.health().context.epoch).until(deadline::current());
        Request { priority: self.priority, ..request }
    }

    fn name(&self, object: ApplicationObject) -> ObjectName {
        names::application(self.health().context.incarnation, object.epoch, object.random)
    }

    /// Makes an object, durable when the operation ends, and gives its fresh name. One put; at most
    /// 128 MiB.
    ///
    /// # Errors
    /// `Invalid` for more bytes; `Fenced` and `PermissionDenied` of a handle that may not write;
    /// those of the store. After an error there may be an object that nobody names.
    pub fn put(&self, bytes: impl Into<Bytes>) -> Op<ApplicationObject> {
        let bytes = bytes.into();
        if let Err(error) = self.health().check_writable() {
            return Op::ready(Err(error));
        }
        if bytes.len() > PUT_BYTES_MAX {
            let error = Error::new(ErrorKind::Invalid, format!("an object of {} bytes", bytes.len()));
            return Op::ready(Err(error
                .expected(format!("at most {PUT_BYTES_MAX}"))
                .advice("put it in several")));
        }
        let (files, env) = (self.clone(), self.health().env.clone());
        self.limited("put of an object", || {
            Op::start(&env, TaskClass::Foreground, "put an application's object", async move {
                let object = ApplicationObject {
                    epoch: files.health().context.epoch.0,
                    random: files.health().env.random_u64(),
                };
                let (name, placement) = (files.name(object), Placement::new(ObjectKind::Other, Life::Long));
                match files.health().objects.put_if_absent(files.request(), &name, placement, bytes).await? {
                    PutOutcome::Created => Ok(object),
                    PutOutcome::Exists => {
                        Err(Error::new(ErrorKind::Bug, "a fresh name was taken").object(name))
                    }
                }
            })
        })
    }

    /// Begins an object whose bytes come in pieces, and whose length nobody need know before:
    /// parts are put while it is written, and a bounded amount is held in memory.
    ///
    /// # Errors
    /// As [`ApplicationObjects::put`].
    pub async fn create(&self, life: Life) -> Result<ApplicationObjectWriter> {
        self.health().check_writable()?;
        let object = ApplicationObject {
            epoch: self.health().context.epoch.0,
            random: self.health().env.random_u64(),
        };
        let (name, placement) = (self.name(object), Placement::new(ObjectKind::Other, life));
        let writer = self.health().objects.create(self.request(), &name, placement).await?;
        Ok(ApplicationObjectWriter { object, writer })
    }

    /// Bytes of an object, cut at its end. One request.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn read(&self, object: ApplicationObject, range: Range<u64>) -> Op<Bytes> {
        let (files, env) = (self.clone(), self.health().env.clone());
        self.limited("read of an object", || {
            Op::start_read(&env, "read an application's object", async move {
                files.health().objects.read(files.request(), &files.name(object), range).await
            })
        })
    }

    /// The length of an object in bytes. One request.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn length(&self, object: ApplicationObject) -> Op<u64> {
        let (files, env) = (self.clone(), self.health().env.clone());
        self.limited("length of an object", || {
            Op::start_read(&env, "length of an application's object", async move {
                files.health().objects.length(files.request(), &files.name(object)).await
            })
        })
    }

    /// All objects, oldest epoch first, those that no keyspace names included. A request for each
    /// thousand.
    ///
    /// # Errors
    /// Those of the store.
    pub fn list(&self) -> Op<Vec<ApplicationObject>> {
        let (files, env) = (self.clone(), self.health().env.clone());
        self.limited("list of objects", || {
            Op::start_read(&env, "list an application's objects", async move {
                let Store { env, objects, context, .. }: &Store = files.health();
                let io = Io {
                    env: env.clone(),
                    store: Arc::clone(objects),
                    epoch: context.epoch,
                    purpose: Purpose::Application,
                };
                let listed = io.list_all(&names::application_prefix(context.incarnation)).await?;
                let parse = |name: &ObjectName| names::parse_application(context.incarnation, name);
                Ok(listed
                    .iter()
                    .filter_map(parse)
                    .map(|(epoch, random)| ApplicationObject { epoch, random })
                    .collect())
            })
        })
    }

    /// Deletes an object, there or not, after it was verified at the log that no other process has
    /// taken over. A look at the log and a request.
    ///
    /// # Errors
    /// `Fenced`, and then nothing was deleted; `PermissionDenied`; those of the store.
    pub fn delete(&self, object: ApplicationObject) -> Op<()> {
        if let Err(error) = self.health().check_writable() {
            return Op::ready(Err(error));
        }
        let (files, env) = (self.clone(), self.health().env.clone());
        self.limited("deletion of an object", || {
            Op::start(&env, TaskClass::Foreground, "delete an application's object", async move {
                files.health().confirm().await?;
                files.health().objects.delete(files.request(), &files.name(object)).await
            })
        })
    }
}
