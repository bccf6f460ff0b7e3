//! How a database is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{Env, TaskClass};
use tombolo_format::question::Verb as Ask;
use tombolo_storage::layer::meter::MeterObjectStore;
use tombolo_storage::{Epoch, Error, ErrorKind, LogStore, ObjectStore, Registry, Result, Uri};
use tracing::Instrument;

use crate::budget::MemoryBudget;
use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::clones::{self, CloneState, SharedClone};
use crate::collection::Destroyed;
use crate::collector::Collector;
use crate::db::{Db, Reader, Standby, application};
use crate::engine::Engine;
use crate::event::Listener;
use crate::extensions::{Extensions, Workers};
use crate::filter::{CompactionFilter, FilterName};
use crate::flash::FlashCache;
use crate::liveness::asking::{self, Answered};
use crate::liveness::presence::{self, Presence};
use crate::op::Op;
use crate::operator::{Operator, OperatorName, Operators};
use crate::options::{OpenMode, Options, TakeOver};
use crate::pace::BackgroundRate;
use crate::reader::{self, ReaderOptions};
use crate::salvage::{self, SalvageMode, SalvageReport};
use crate::slow::work_span;
use crate::standby::{StandbyOptions, Watch};
use crate::workers::CompactionWorkers;
use crate::{lifecycle, manifest, recovery};

/// What to do when the deadline of a verb has passed.
const AGAIN: &str = "it may be done again: what was begun and not ended counts as nothing";
pub(super) const MADE: &str =
    "the target may hold it already, or come to: open it to find out before it is done again";
const CLAIMED: &str = "the claim may stand: open again";

/// What to open, and how. Made by [`Db::builder`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open()`"]
pub struct Builder {
    pub(crate) uri: String,
    pub(crate) log: Option<String>,
    pub(crate) env: Option<Env>,
    pub(crate) registry: Option<Registry>,
    pub(crate) stores: Option<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)>,
    pub(crate) mode: OpenMode,
    pub(crate) take_over: TakeOver,
    pub(crate) options: Options,
    pub(crate) deadline: Option<Duration>,
    pub(crate) budget: Option<Arc<MemoryBudget>>,
    pub(crate) checkpoint: Option<String>,
    pub(crate) tables_only: bool,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) flash: Option<Arc<FlashCache>>,
    pub(crate) rate: Option<Arc<BackgroundRate>>,
    pub(crate) operators: Operators,
    pub(crate) application_logs: u32,
    pub(crate) extensions: Extensions,
    pub(crate) cold_store: Option<String>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("uri", &self.uri)
            .field("log", &self.log)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// As [`Db::from_path`].
    ///
    /// # Errors
    /// As [`Db::from_path`].
    pub fn from_path(path: impl AsRef<Path>) -> Result<Builder> {
        Ok(Builder::new(Uri::from_path(path)?.to_string()))
    }

    pub(crate) fn new(uri: String) -> Builder {
        Builder {
            uri,
            log: None,
            env: None,
            registry: None,
            stores: None,
            mode: OpenMode::default(),
            take_over: TakeOver::default(),
            options: Options::default(),
            deadline: None,
            budget: None,
            checkpoint: None,
            tables_only: false,
            listener: None,
            flash: None,
            rate: None,
            operators: Operators::default(),
            application_logs: 0,
            extensions: Extensions::default(),
            cold_store: None,
        }
    }

    /// The log store's URI (`file:///path?form=written`); that of a directory's path is
    /// [`Uri::from_path`]. Default: the object store's own log.
    pub fn log(mut self, uri: impl Into<String>) -> Builder {
        self.log = Some(uri.into());
        self
    }

    /// The world: databases that are given clones of one share its threads, however many there are.
    /// Default: a real one of the database's own.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = Some(env);
        self
    }

    /// The schemes that URIs may have. Default: [`Registry::with_defaults`], `file` and `mem` among
    /// them; `near` is registered by the crate of the near-compute log.
    pub fn registry(mut self, registry: Registry) -> Builder {
        self.registry = Some(registry);
        self
    }

    /// Ready-made stores instead of URIs; the builder's URI is then only for messages.
    pub fn stores(mut self, objects: Arc<dyn ObjectStore>, log: Arc<dyn LogStore>) -> Builder {
        self.stores = Some((objects, log));
        self
    }

    /// Whether opening may create. Default: it may.
    pub fn mode(mut self, mode: OpenMode) -> Builder {
        self.mode = mode;
        self
    }

    /// From whom [`Builder::open`] and [`Builder::destroy`] may take the database. Default: from
    /// other processes, not from a handle of this one.
    pub fn take_over(mut self, take_over: TakeOver) -> Builder {
        self.take_over = take_over;
        self
    }

    /// Who is told of events: flushes, compactions, trouble that begins and ends, takeover. All of
    /// it goes to `tracing` as well.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Builder {
        self.listener = Some(listener);
        self
    }

    /// A collector, which says properties of each table that is written from here on:
    /// [`crate::Keyspace::table_properties`]. One of the same name takes its place. At most 16.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use tombolo::{Collector, Db, TableCollector, TableEntry};
    ///
    /// /// The longest value of each table.
    /// struct Longest;
    ///
    /// struct OfTable(u64);
    ///
    /// impl Collector for Longest {
    ///     fn begin(&self, _keyspace: u32, _level: u8) -> Box<dyn TableCollector> {
    ///         Box::new(OfTable(0))
    ///     }
    /// }
    ///
    /// impl TableCollector for OfTable {
    ///     fn add(&mut self, _key: &[u8], entry: TableEntry<'_>) {
    ///         if let TableEntry::Put(value) = entry {
    ///             self.0 = self.0.max(value.len() as u64);
    ///         }
    ///     }
    ///
    ///     fn finish(self: Box<Self>) -> Vec<(String, Vec<u8>)> {
    ///         vec![("bytes".into(), self.0.to_le_bytes().into())]
    ///     }
    /// }
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let db = Db::builder("mem://collected").collector("longest", Arc::new(Longest)).open().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn collector(mut self, name: &str, collector: Arc<dyn Collector>) -> Builder {
        self.extensions.collectors.add(name, collector);
        self
    }

    /// Settings.
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// A memory budget, and with it a block cache, that several databases of the process share.
    /// Default: one of the database's own, of [`Options::memory_bytes`]. With a shared one,
    /// `memory_bytes` only says from which memory `memtable_bytes` follows, if it is smaller.
    pub fn memory_budget(mut self, budget: &Arc<MemoryBudget>) -> Builder {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// A cache on a local disk, under the block cache, that databases of the process may share: for
    /// stores that are far away. Default: what [`Options::flash_cache_directory`] says, and else
    /// none.
    pub fn flash_cache(mut self, flash: &Arc<FlashCache>) -> Builder {
        self.flash = Some(Arc::clone(flash));
        self
    }

    /// A bound on what the background work of several databases of the process moves, beside each
    /// one's own. Default: none. Opened for reading only, a database has none.
    pub fn background_rate(mut self, rate: &Arc<BackgroundRate>) -> Builder {
        self.rate = Some(Arc::clone(rate));
        self
    }

    /// A merge operator, for keyspaces that name it ([`crate::KeyspaceOptions::operator`]). Those
    /// that [`Operator`] lists are always there. One of the same name and version takes the place
    /// of another; several versions of a name may be there at once.
    ///
    /// A keyspace whose operator is not there opens all the same: keys that were never merged are
    /// read, merged ones answer `Unsupported`, and nothing of them is lost.
    ///
    /// ```
    /// use tombolo::{AssociativeOperator, Db, KeyspaceOptions, Operator, OperatorError, OperatorName};
    ///
    /// struct Xor;
    ///
    /// impl AssociativeOperator for Xor {
    ///     fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Result<(), OperatorError> {
    ///         older.iter_mut().zip(newer).for_each(|(older, newer)| *older ^= newer);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let xor = OperatorName::new("xor", 1)?;
    /// let db = Db::builder("mem://parity").operator(xor.clone(), Operator::associative(Xor)).open().wait()?;
    /// let options = KeyspaceOptions { operator: Some(xor), ..KeyspaceOptions::default() };
    /// let parity = db.create_keyspace("parity", options).wait()?;
    /// parity.merge(b"row", [0b01]).wait()?;
    /// parity.merge(b"row", [0b11]).wait()?;
    /// assert_eq!(parity.get(b"row").wait()?.as_deref(), Some(&[0b10][..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn operator(mut self, name: OperatorName, operator: Operator) -> Builder {
        self.operators.insert(name, operator);
        self
    }

    /// A compaction filter, for keyspaces that name it
    /// ([`crate::KeyspaceOptions::compaction_filter`]): compaction keeps what it says. One of the
    /// same name and version takes the place of another. In a keyspace whose filter is not there
    /// nothing is filtered, which [`crate::Event::FilterFailed`] says once.
    ///
    /// ```
    /// use tombolo::{
    ///     CompactionFilter, Db, FilterDecision, FilterEntry, FilterJob, FilterName, JobFilter,
    ///     KeyspaceOptions,
    /// };
    ///
    /// /// Drops values that are empty.
    /// struct NoEmpty;
    ///
    /// impl CompactionFilter for NoEmpty {
    ///     fn begin(&self, _job: &FilterJob) -> Option<Box<dyn JobFilter>> {
    ///         Some(Box::new(|entry: &FilterEntry<'_>| {
    ///             let is_empty = entry.value.is_some_and(<[u8]>::is_empty);
    ///             Ok(if is_empty { FilterDecision::Drop } else { FilterDecision::Keep })
    ///         }))
    ///     }
    /// }
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let name = FilterName::new("no_empty", 1)?;
    /// let db = Db::builder("mem://filtered").compaction_filter(name.clone(), NoEmpty).open().wait()?;
    /// let options = KeyspaceOptions { compaction_filter: Some(name), ..KeyspaceOptions::default() };
    /// let notes = db.create_keyspace("notes", options).wait()?;
    /// notes.put("one", "").wait()?;
    /// notes.put("two", "text").wait()?;
    /// db.compact().wait()?;
    /// assert_eq!(notes.scan::<&[u8]>(..).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compaction_filter(mut self, name: FilterName, filter: impl CompactionFilter) -> Builder {
        self.extensions.filters.insert(name, Arc::new(filter));
        self
    }

    /// Who runs compactions elsewhere, where [`Options::compaction`] or
    /// [`crate::KeyspaceOptions::compaction`] says that they do. From here on tables say sums of
    /// their entries' hashes, by which answers are checked.
    pub fn compaction_workers(mut self, workers: Arc<dyn CompactionWorkers>) -> Builder {
        self.extensions.workers = Some(Workers(workers));
        self
    }

    /// A second store, where bytes cost less, for what has gone cold: keyspaces say by
    /// [`crate::KeyspaceOptions::cold_after`] what has. The database keeps its URI, so that it is
    /// to be said once, or where the store has moved; it must hold no secret. Several databases may
    /// share one store.
    ///
    /// While the cold store is out of reach the database opens, is written and is read where its
    /// data is hot; reads of cold data end with the store's error.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tombolo::{Db, KeyspaceOptions};
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let db = Db::builder("file:///fast/events").cold_store("s3://archive/events").open().wait()?;
    /// let cold_after = Some(Duration::from_secs(30 * 86_400));
    /// let options = KeyspaceOptions { cold_after, ..KeyspaceOptions::default() };
    /// let events = db.create_keyspace("events", options).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cold_store(mut self, uri: impl Into<String>) -> Builder {
        self.cold_store = Some(uri.into());
        self
    }

    /// How many logs of its own the application keeps in the database's log store: see
    /// [`crate::ApplicationLog`]. At most 4; each is a lane of its own in each epoch's log. What
    /// earlier epochs left in one stays until it is released, whether or not it is asked for here.
    /// Default: none.
    pub fn application_logs(mut self, logs: u32) -> Builder {
        self.application_logs = logs;
        self
    }

    /// How long a verb of this builder may take before it gives up with `DeadlineExceeded`; what it
    /// had begun may be left: of opening the claim, of a restore or a clone an empty target with
    /// objects that collection deletes, or, where the last record was on its way, all of it.
    /// Default: no limit. The database's own verbs have [`Db::within`].
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.deadline = Some(deadline);
        self
    }

    /// Opens: `read manifest → claim → fence the logs → replay → serve`. Another process that has
    /// the database open learns at its next write that it is fenced; [`Builder::take_over`] says
    /// from whom it may be taken.
    ///
    /// # Errors
    /// `NotFound` or `AlreadyExists` against the mode; `InUse` when somebody has it open from whom
    /// it may not be taken, this process for one; `Invalid` for a wrong URI or setting, a
    /// memory budget too small for all who share it, or another log than the database was created
    /// with; `Unsupported` for a newer format; `Corrupt`; `DeadlineExceeded`; those of the stores.
    pub fn open(self) -> Op<Db> {
        let checked = self.options.check().and_then(|()| self.extensions.check_for(&self.options));
        if let Err(error) = checked.and_then(|()| application::check_logs(self.application_logs)) {
            return Op::ready(Err(error));
        }
        if self.checkpoint.is_some() {
            let error = Error::new(ErrorKind::Invalid, "a checkpoint cannot be opened for writing");
            return Op::ready(Err(
                error.advice("use open_read_only, or make a database of it with restore_to")
            ));
        }
        if self.tables_only {
            return Op::ready(Err(not_without_logs()));
        }
        self.start(TaskClass::Foreground, "open", CLAIMED, async |builder, env| {
            Db::of_writer(open(builder, env).await?).hold_prepared().await?.follow_again().await
        })
    }

    /// Starts a verb, which is given up at the deadline; `advice` says what to do then.
    pub(super) fn start<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        self,
        class: TaskClass,
        name: &'static str,
        advice: &'static str,
        verb: impl FnOnce(Builder, Env) -> F,
    ) -> Op<T> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        let deadline = self.deadline.map(|deadline| env.now() + deadline);
        let (world, work) = (env.clone(), verb(self, env.clone()));
        let within = async move { lifecycle::until(&world, deadline, advice, work).await };
        Op::start(&env, class, name, within.instrument(work_span(name)))
    }

    /// Names a checkpoint: for [`Builder::open_read_only`] and [`Builder::restore_to`].
    pub fn at_checkpoint(mut self, name: impl Into<String>) -> Builder {
        self.checkpoint = Some(name.into());
        self
    }

    /// Leaves logs out of what [`Builder::open_read_only`] shows: only what tables hold, which may
    /// be much older than what was acknowledged. For a log that is lost, or out of reach.
    pub fn tables_only(mut self) -> Builder {
        self.tables_only = true;
        self
    }

    /// Looks at a database: opens it for reading only, takes no claim, and disturbs no writer.
    /// Whatever would write ends with `PermissionDenied`.
    ///
    /// It shows everything that was acknowledged as durable before the call, and stays at that:
    /// [`Db::age`] says how old it is. [`Builder::open_reader`] goes on. With
    /// [`Builder::at_checkpoint`] it shows all that the checkpoint holds; with
    /// [`Builder::tables_only`] what tables hold.
    ///
    /// No right to write is needed. Where the store lets it, its tables are pinned under a lease of
    /// a minute, as a reader's; close it to give the pin back at once. Where the store may only be
    /// read, or is full, it goes on without, and creates, locks and changes nothing there: a read
    /// whose table a writer has deleted meanwhile then ends with `PinLost`. Opening again shows the
    /// newest.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// let look = Db::builder("file:///var/lib/orders").open_read_only().wait()?;
    /// println!("{:?}", look.default_keyspace().get(b"1").wait()?);
    /// look.close().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no such database or checkpoint; `Invalid` for another log than that
    /// of the database; `Unsupported` for a newer format, or a log that only its own process can
    /// read; `Corrupt`; `Busy` when the writer goes on faster than its log is read; `Retry` when
    /// the writer of a near-compute log died, or stands still, and may have acknowledged more than
    /// its nodes can tell: once the log has been taken over it opens; those of the stores. What a
    /// log holds is never left out silently.
    pub fn open_read_only(self) -> Op<Db> {
        if let Err(error) = self.options.check() {
            return Op::ready(Err(error));
        }
        self.start(TaskClass::Foreground, "open read-only", AGAIN, async |builder, env| {
            open_read_only(builder, env).await.map(Db::new)
        })
    }

    /// Opens for reading beside a live writer, and follows it: see [`Reader`]. On return everything
    /// is visible that was acknowledged as durable before the call. Takes no claim; puts a leased
    /// pin and its heartbeats, so that it needs the permission to put and delete.
    ///
    /// # Errors
    /// `NotFound` when there is no such database; `Invalid` for an option out of range, a
    /// checkpoint, or another log than that of the database; `Unsupported` for a newer format, or a
    /// log that only its own process can read; `Corrupt`; `Retry` when the writer of a near-compute
    /// log died, or stands still, and may have acknowledged more than its nodes can tell: once the
    /// log has been taken over it opens; those of the stores.
    pub fn open_reader(self, reader: ReaderOptions) -> Op<Reader> {
        let checked =
            self.options.check().and_then(|()| reader.check()).and_then(|()| match &self.checkpoint {
                Some(_) => Err(Error::new(ErrorKind::Invalid, "a checkpoint stays as it is")
                    .advice("open it with open_read_only")),
                None if self.tables_only => Err(not_without_logs()),
                None => Ok(()),
            });
        if let Err(error) = checked {
            return Op::ready(Err(error));
        }
        self.start(TaskClass::Foreground, "open reader", AGAIN, async move |builder, env| {
            open_reader(builder, reader, env).await.map(|engine| Reader::new(Db::new(engine)))
        })
    }

    /// Stands by for the database's writer: registers, so that the writer gives signs of life, and
    /// loads the newest state. See [`Standby`].
    ///
    /// # Errors
    /// `NotFound` when there is no such database; `Invalid` for an option out of range, a
    /// checkpoint, or another log than that of the database; `Unsupported` for a newer format;
    /// `Corrupt`; those of the store.
    pub fn stand_by(mut self, standby: StandbyOptions) -> Op<Standby> {
        let logs = || application::check_logs(self.application_logs);
        let checked =
            self.options.check().and_then(|()| standby.check()).and_then(|()| logs()).and_then(|()| {
                match &self.checkpoint {
                    Some(_) => {
                        Err(Error::new(ErrorKind::Invalid, "a checkpoint has no writer to stand by for"))
                    }
                    None => Ok(()),
                }
            });
        if let Err(error) = checked {
            return Op::ready(Err(error));
        }
        // Creating a missing database is no taking over.
        self.mode = OpenMode::Open;
        self.take_over = TakeOver::Always;
        self.start(TaskClass::Foreground, "begin to stand by", AGAIN, async move |builder, env| {
            let watch = Watch::begin(request(builder, env.clone())?, standby).await?;
            Ok(Standby::new(env, watch))
        })
    }

    /// Says who has the database open as its writer. Takes no claim and disturbs nobody.
    ///
    /// A clean close, and a process that ended on this host, are known at once. Of others a sign of
    /// life is asked for, as somebody does who stands by, and waited for up to `wait_max`; a writer
    /// that does nothing looks for that once a minute. Less than [`Presence::WAIT_MAX`] may end
    /// with [`Presence::Unknown`], and a wait of zero asks nobody. Costs a load of the manifest;
    /// and for asking a put, a delete, and one or two lists a second.
    ///
    /// # Errors
    /// `Invalid` for another log than that of the database; `PermissionDenied` where nothing may be
    /// put to ask; `Unsupported` for a newer format; `Corrupt`; those of the store.
    pub fn presence(self, wait_max: Duration) -> Op<Presence> {
        self.start(TaskClass::Foreground, "who writes", AGAIN, async move |builder, env| {
            let (objects, log_store) = stores(&builder, &env)?;
            presence::of(&env, &objects, &*log_store, wait_max).await
        })
    }

    /// Asks the process that has the database open to do something: see [`Ask`]. Takes no claim.
    /// Every process that has a database open answers, with no code of its own.
    ///
    /// The writer finds the question where it looks for those who stand by: within a minute when it
    /// has nothing to do, and within ten seconds when it was asked a moment ago. It is waited for
    /// as long as it gives signs of life; [`Builder::deadline`] bounds that. The request is done
    /// once by each epoch that finds it. Costs a put and a delete of the question, and some four
    /// requests a second while it waits.
    ///
    /// # Errors
    /// `NotFound` when nobody has the database open; `OutcomeUnknown` when the writer closes, dies
    /// or does not answer; `Invalid` for another log than that of the database; `PermissionDenied`
    /// where nothing may be put; those of the request; those of the store.
    pub fn ask(self, ask: Ask) -> Op<Answered> {
        let advice = "it may be done yet: look for what was asked";
        self.start(TaskClass::Foreground, "ask the writer", advice, async move |builder, env| {
            let (objects, log_store) = stores(&builder, &env)?;
            asking::ask(&env, &objects, &*log_store, ask).await
        })
    }

    /// The checkpoints of the database, oldest first, and then those that cannot be read. Disturbs
    /// no writer.
    ///
    /// # Errors
    /// `NotFound` when there is no database; those of the store.
    pub fn checkpoints(self) -> Op<Vec<Checkpoint>> {
        self.start(TaskClass::Foreground, "list checkpoints", AGAIN, async |builder, env| {
            let checkpoints = checkpoints(&builder, &env).await?.list().await?;
            Ok(checkpoints.iter().map(Checkpoint::from).collect())
        })
    }

    /// Deletes a checkpoint, which is named by its name or else by its id. Disturbs no writer,
    /// which gives the space back when it next collects.
    ///
    /// # Errors
    /// `NotFound` when there is no such database or checkpoint; those of the store.
    pub fn delete_checkpoint(self, name: impl Into<String>) -> Op<()> {
        let name = name.into();
        self.start(TaskClass::Foreground, "delete checkpoint", AGAIN, async move |builder, env| {
            checkpoints(&builder, &env).await?.delete(&name).await
        })
    }

    /// Makes a database of its own of the checkpoint named by [`Builder::at_checkpoint`], where
    /// `target` says: another URI, with the log that the new database will use. Tables are taken
    /// over by reference where the target's store can (hard links within one file system), else
    /// copied. The target is an ordinary database afterwards, independent of this one; it is empty
    /// until the very end, so a restore that was interrupted can be made again.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// let backup = Db::builder("file:///backup/orders");
    /// Db::builder("file:///var/lib/orders").at_checkpoint("monday").restore_to(backup).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` without a checkpoint's name; `NotFound` when there is no such checkpoint;
    /// `AlreadyExists` when the target holds a database with keyspaces; those of both stores.
    pub fn restore_to(mut self, target: Builder) -> Op<()> {
        let Some(checkpoint) = self.checkpoint.clone() else {
            return Op::ready(Err(Error::new(ErrorKind::Invalid, "no checkpoint was named")
                .advice("name one with at_checkpoint")));
        };
        self.env = self.env.or_else(|| target.env.clone());
        self.start(TaskClass::Foreground, "restore", MADE, async move |builder, env| {
            let source = objects(&builder, &env)?;
            let (target, log_store) = stores(&target, &env)?;
            recovery::restore(recovery::RestoreRequest { env, source, checkpoint, target, log_store }).await
        })
    }

    /// Makes a database at another place that **shares** this one's tables: its manifest names them
    /// where they lie, and a pin keeps them there. Nothing is copied, so that it takes the same
    /// time for a gigabyte and for a terabyte; the clone is written, compacted and cloned like any
    /// database, and what it writes is its own. Of the checkpoint named by
    /// [`Builder::at_checkpoint`], or else of what tables hold now (entries only in a log are not
    /// in it: [`Db::share_to`] takes that as well). Disturbs no writer.
    ///
    /// As long as the clone names a table, this database keeps it, and is not to be destroyed.
    /// Compaction moves a clone away from its sources table by table; destroying it gives back all
    /// it keeps. Both places are stored as the way from one to the other: move them together, or
    /// not at all.
    ///
    /// A clone on another store serves reads and writes at once, too. It pulls its tables behind,
    /// whenever it has nothing else to do, and lets go of its source once it has all: then the
    /// source may be destroyed. Both manifests keep the other one's URI, which must hold no secret.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// let tests = Db::builder("s3://bucket/orders-for-tests");
    /// Db::builder("s3://bucket/orders").at_checkpoint("monday").share_to(tests).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no such database or checkpoint; `AlreadyExists` when the target
    /// holds a database with keyspaces; `Invalid` when it lies on another store and a URI holds a
    /// secret; `Unsupported` for stores that were not opened by URIs; `Busy` when tables were
    /// deleted faster than they could be pinned; those of the stores. After `OutcomeUnknown` and
    /// `Fenced` the clone may be there.
    pub fn share_to(mut self, target: Builder) -> Op<()> {
        self.env = self.env.or_else(|| target.env.clone());
        self.start(
            TaskClass::Foreground,
            "share",
            "the clone may be there: open it to find out",
            async move |builder, env| {
                let source = objects(&builder, &env)?;
                let (target, log_store) = stores(&target, &env)?;
                recovery::share(recovery::CloneRequest {
                    env,
                    source,
                    checkpoint: builder.checkpoint,
                    target,
                    log_store,
                })
                .await
            },
        )
    }

    /// The clones that share this database's tables, each asked whether it needs them: see
    /// [`Builder::share_to`]. Also of a database that was destroyed. Disturbs nobody. Costs a list,
    /// a read for each clone, and a load of each clone's manifest.
    ///
    /// # Errors
    /// Those of the database's own store.
    pub fn clones(self) -> Op<Vec<SharedClone>> {
        self.start(TaskClass::Foreground, "list clones", AGAIN, async |builder, env| {
            clones::survey(&env, &objects(&builder, &env)?).await
        })
    }

    /// Gives back what this database keeps for a clone, which is named by the number of its pin
    /// ([`SharedClone::id`]): when it is `Unneeded`, or when `force` says so, of one that is known
    /// to be gone though nothing proves it. A clone that needed it has lost its data.
    ///
    /// # Errors
    /// `NotFound` when there is no such pin; `Invalid` when the clone may need it; those of the
    /// store.
    pub fn release_clone(self, id: u128, force: bool) -> Op<()> {
        self.start(TaskClass::Foreground, "release clone", AGAIN, async move |builder, env| {
            let objects = objects(&builder, &env)?;
            let all = clones::survey(&env, &objects).await?;
            let Some(clone) = all.iter().find(|clone| clone.id == id) else {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("no clone {id:032x} shares tables of {}", objects.describe()),
                ));
            };
            if clone.state != CloneState::Unneeded && !force {
                let error = Error::new(
                    ErrorKind::Invalid,
                    format!("the clone at {} may need what it shares", clone.place),
                );
                return Err(error
                    .found(&clone.why)
                    .advice("destroy the clone, or force it when it is gone for good"));
            }
            clones::release(&env, &objects, clone).await
        })
    }

    /// Looks at a database of which objects are gone or damaged, and says what can be had of it,
    /// and what not. Reads everything that it names; claims, changes and disturbs nothing. End its
    /// writer first: tables that it deletes meanwhile look lost.
    ///
    /// # Errors
    /// `NotFound` when there is no database; `Corrupt` when nothing of the kind asked for is left;
    /// `Unsupported` for one with streams and without a checkpoint; those of the stores.
    pub fn survey_damage(self, mode: SalvageMode) -> Op<SalvageReport> {
        self.salvage(None, mode)
    }

    /// As [`Builder::survey_damage`], and makes a database of its own of what can be had, where
    /// `target` says: as [`Builder::restore_to`], and with what logs hold as well. What could not
    /// be had is in the report: look at it before the new database takes the old one's place.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::{Db, SalvageMode};
    ///
    /// let saved = Db::builder("file:///var/lib/orders-saved");
    /// let report = Db::builder("file:///var/lib/orders").salvage_to(saved, SalvageMode::Consistent).wait()?;
    /// for loss in &report.losses {
    ///     eprintln!("{}", loss.what);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::survey_damage`]; `AlreadyExists` when the target holds a database with
    /// keyspaces.
    pub fn salvage_to(self, target: Builder, mode: SalvageMode) -> Op<SalvageReport> {
        self.salvage(Some(target), mode)
    }

    fn salvage(self, target: Option<Builder>, mode: SalvageMode) -> Op<SalvageReport> {
        if let Err(error) = self.options.check() {
            return Op::ready(Err(error));
        }
        let advice = if target.is_some() { MADE } else { AGAIN };
        self.start(TaskClass::Background, "salvage", advice, async move |builder, env| {
            let (objects, log_store) = stores(&builder, &env)?;
            let target = target.map(|target| stores(&target, &env)).transpose()?;
            salvage::salvage(salvage::SalvageRequest {
                env,
                objects,
                log_store,
                options: builder.options,
                mode,
                target,
            })
            .await
        })
    }

    /// Destroys the database: its chain of records ends for ever, its objects are deleted. Creating
    /// at the same URI makes another one.
    ///
    /// Readers that live keep all its tables, and the answer says so: destroy it again once they
    /// have ended. What readers have left that died is waited for, about as long as their lease, a
    /// minute by default; of a lease of more than two minutes it is told like that of one that
    /// lives.
    ///
    /// # Errors
    /// `NotFound`, also when nothing of a destroyed one is left; `InUse` as opening; `Invalid`
    /// while it has checkpoints, or clones that share its tables; those of the stores.
    pub fn destroy(self) -> Op<Destroyed> {
        self.start(
            TaskClass::Foreground,
            "destroy",
            "what is left is deleted by destroying it again",
            destroy,
        )
    }
}

pub(crate) fn stores(builder: &Builder, env: &Env) -> Result<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)> {
    if let Some((objects, log)) = &builder.stores {
        return Ok((MeterObjectStore::wrap(Arc::clone(objects)), Arc::clone(log)));
    }
    let registry = builder.registry.clone().unwrap_or_else(Registry::with_defaults);
    let store = Uri::parse(&builder.uri)?;
    let log = builder.log.as_deref().map(Uri::parse).transpose()?;
    let objects = registry.open_object_store(env, &store)?;
    let log_store = registry.open_log_store(env, &store, log.as_ref(), &objects)?;
    Ok((objects, log_store))
}

pub(crate) fn objects(builder: &Builder, env: &Env) -> Result<Arc<dyn ObjectStore>> {
    match &builder.stores {
        Some((objects, _)) => Ok(MeterObjectStore::wrap(Arc::clone(objects))),
        None => {
            let registry = builder.registry.clone().unwrap_or_else(Registry::with_defaults);
            registry.open_object_store(env, &Uri::parse(&builder.uri)?)
        }
    }
}

async fn checkpoints(builder: &Builder, env: &Env) -> Result<Checkpoints> {
    let objects = objects(builder, env)?;
    let loaded = manifest::load(env, &objects).await?;
    Ok(Checkpoints::new(env, &objects, loaded.incarnation, Epoch::NONE))
}

fn not_without_logs() -> Error {
    Error::new(ErrorKind::Invalid, "tables alone can be looked at, and no more")
        .advice("use open_read_only, or leave tables_only out")
}

async fn open_read_only(builder: Builder, env: Env) -> Result<Arc<Engine>> {
    if builder.checkpoint.is_none() && !builder.tables_only {
        let (objects, log_store) = stores(&builder, &env)?;
        return follow(builder, env, (objects, Some(log_store)), reader::How::Look).await;
    }
    // Of a log that is not read nothing need be known.
    let objects = objects(&builder, &env)?;
    let Some(checkpoint) = builder.checkpoint.clone() else {
        return follow(builder, env, (objects, None), reader::How::Look).await;
    };
    let Builder { uri, mut options, budget, flash, operators, .. } = builder;
    let budget = budget_of(budget, &mut options)?;
    recovery::open_checkpoint(recovery::CheckpointRequest {
        env,
        place: uri,
        objects,
        checkpoint,
        options,
        budget,
        flash,
        operators,
    })
    .await
}

async fn open_reader(builder: Builder, options: ReaderOptions, env: Env) -> Result<Arc<Engine>> {
    let (objects, log_store) = stores(&builder, &env)?;
    follow(builder, env, (objects, Some(log_store)), reader::How::Follow(options)).await
}

async fn follow(
    builder: Builder,
    env: Env,
    (objects, log_store): (Arc<dyn ObjectStore>, Option<Arc<dyn LogStore>>),
    how: reader::How,
) -> Result<Arc<Engine>> {
    let Builder { uri, mut options, budget, flash, operators, .. } = builder;
    let budget = budget_of(budget, &mut options)?;
    reader::open(reader::FollowRequest {
        env,
        place: uri,
        objects,
        log_store,
        options,
        budget,
        flash,
        operators,
        how,
    })
    .await
}

/// The budget given, or one of the database's own.
fn budget_of(given: Option<Arc<MemoryBudget>>, options: &mut Options) -> Result<Arc<MemoryBudget>> {
    let budget = match given {
        Some(budget) => budget,
        None => MemoryBudget::private(options.memory_bytes)?,
    };
    options.memory_bytes = options.memory_bytes.min(budget.bytes());
    Ok(budget)
}

fn request(builder: Builder, env: Env) -> Result<recovery::Request> {
    let (objects, log_store) = stores(&builder, &env)?;
    let Builder {
        uri,
        mode,
        take_over,
        mut options,
        budget,
        listener,
        flash,
        rate,
        operators,
        application_logs,
        extensions,
        cold_store,
        ..
    } = builder;
    extensions.check()?;
    let budget = budget_of(budget, &mut options)?;
    Ok(recovery::Request {
        env,
        place: uri,
        objects,
        log_store,
        mode,
        take_over,
        options,
        budget,
        listener,
        flash,
        rate,
        operators,
        application_logs,
        extensions,
        cold_store,
        passes_mark: false,
    })
}

/// The settings of a builder, and the memory that it gives.
///
/// # Errors
/// `Invalid`.
pub(crate) fn memory_of(builder: &Builder) -> Result<(Options, Arc<MemoryBudget>)> {
    builder.options.check()?;
    let mut options = builder.options.clone();
    let budget = budget_of(builder.budget.clone(), &mut options)?;
    Ok((options, budget))
}

/// Opens a database whatever its mark.
///
/// # Errors
/// As [`Builder::open`].
pub(crate) async fn open_marked(mut builder: Builder, env: Env) -> Result<Db> {
    builder.mode = OpenMode::Open;
    let request = recovery::Request { passes_mark: true, ..request(builder, env)? };
    Ok(Db::of_writer(recovery::open(request).await?))
}

async fn open(builder: Builder, env: Env) -> Result<Arc<Engine>> {
    recovery::open(request(builder, env)?).await
}

async fn destroy(builder: Builder, env: Env) -> Result<Destroyed> {
    recovery::destroy(request(builder, env)?).await
}
