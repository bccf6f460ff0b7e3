//! Ranges of several checkpoints become one database:
//! `read checkpoints → claim the target → tables by reference, those that a range cuts rewritten → one commit names all`.
//!
//! So state that is kept by ranges of keys moves to more processes, or to fewer. A range is from a
//! key on and before another one, and takes a part of each keyspace.
//!
//! Invariants, beside those of [`super::restore`]:
//! 1. Nothing of a table beyond its range is named: a table that reaches beyond is written anew,
//!    entries and range deletes, versions and all.
//! 2. The parts of one keyspace from several sources do not meet. So numbers of different
//!    sources are never compared, and a level stays without overlaps.
//! 3. Numbers go on above the greatest of all sources, and time does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env, all};
use tombolo_format::cold::PROPERTY_COLD;
use tombolo_format::expiry::Times;
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::{Edit, KeyspaceOptions as Settings, MAIN_STREAM, TableDescription, TableName};
use tombolo_format::property::Property;
use tombolo_format::value_object::{PROPERTY_VALUE_OBJECTS, Reference, Referred, encode_referred};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, LogStore, ObjectStore, Purpose, Request, Result};

use super::restore::COPIES_IN_FLIGHT_MAX;
use super::{Copy, DEFAULT_KEYSPACE, HowToCopy, claim_empty};
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::checkpoint::{Checkpoints, last_sequence};
use crate::engine::OWN_NAMES;
use crate::manifest::{self, KeyspaceState, Manifest, Places, State, names};
use crate::options::KeyspaceOptions;
use crate::resolve::apart;
use crate::table::{NewTable, Step, Table, TableWriter, piece_bytes};
use crate::version::{BLOCK_BYTES_BEYOND, table_options};

/// Memory for reading the tables that are cut.
const BUDGET_BYTES: u64 = 64 << 20;

/// Keys from one on and before another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Option<Bytes>,
    pub(crate) to: Option<Bytes>,
}

impl Span {
    fn meets_table(&self, table: &TableDescription) -> bool {
        !self.from.as_ref().is_some_and(|from| table.ends_before(from))
            && self.to.as_ref().is_none_or(|to| table.first_key < *to)
    }

    fn holds(&self, table: &TableDescription) -> bool {
        self.from.as_ref().is_none_or(|from| *from <= table.first_key)
            && self.to.as_ref().is_none_or(|to| table.ends_before(to))
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.from, &self.to) {
            (None, None) => formatter.write_str("all keys"),
            (Some(from), None) => write!(formatter, "keys from {from:?} on"),
            (None, Some(to)) => write!(formatter, "keys before {to:?}"),
            (Some(from), Some(to)) => write!(formatter, "keys from {from:?} on and before {to:?}"),
        }
    }
}

/// A range of a checkpoint.
pub(crate) struct Part {
    pub(crate) source: Arc<dyn ObjectStore>,
    pub(crate) checkpoint: String,
    pub(crate) span: Span,
    /// Of these keyspaces alone; empty: of all.
    pub(crate) keyspaces: BTreeSet<String>,
}

/// What to restore, and where.
pub(crate) struct PartsRequest {
    pub(crate) env: Env,
    pub(crate) parts: Vec<Part>,
    pub(crate) target: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
}

/// A part whose checkpoint was read.
struct Loaded<'a> {
    part: &'a Part,
    checkpoints: Checkpoints,
    id: u128,
    state: State,
    places: Places,
}

impl Loaded<'_> {
    /// The keyspaces that it takes something of.
    fn keyspaces(&self) -> impl Iterator<Item = &Arc<KeyspaceState>> {
        self.state.keyspaces().filter(|keyspace| {
            !keyspace.name.starts_with(OWN_NAMES)
                && (self.part.keyspaces.is_empty() || self.part.keyspaces.contains(&*keyspace.name))
        })
    }
}

/// A keyspace of the target.
struct Planned {
    id: u32,
    stream: u32,
    settings: Settings,
    /// What each part has of it.
    reached: Vec<Reached>,
}

/// What a part has of a keyspace: from its first key up to its last one, or to where it ends.
struct Reached {
    span: Span,
    first: Bytes,
    last: Bytes,
}

impl Reached {
    /// Of these tables; `None` of none.
    fn of(span: &Span, keyspace: &KeyspaceState) -> Option<Reached> {
        let tables = || keyspace.tables().filter(|table| span.meets_table(table));
        let first = tables().map(|table| &table.first_key).min()?;
        let last = tables().map(|table| &table.last_key).max()?;
        let first = span.from.as_ref().map_or(first, |from| from.max(first));
        Some(Reached { span: span.clone(), first: first.clone(), last: last.clone() })
    }

    fn ends_before(&self, key: &Bytes) -> bool {
        self.last < *key || self.span.to.as_ref().is_some_and(|to| to <= key)
    }

    fn meets(&self, other: &Reached) -> bool {
        !self.ends_before(&other.first) && !other.ends_before(&self.first)
    }
}

/// Makes a database of ranges of several checkpoints.
pub(crate) async fn restore_parts(request: PartsRequest) -> Result<()> {
    let PartsRequest { env, parts, target, log_store } = request;
    let mut all_loaded = Vec::with_capacity(parts.len());
    for part in &parts {
        all_loaded.push(load(&env, part).await?);
    }
    let planned = plan(&all_loaded)?;
    let manifest = claim_empty(&env, &target, &*log_store).await?;
    let maker = Maker { env: &env, manifest: &manifest, target: &target, planned: &planned };
    let edits = match maker.edits(&all_loaded).await {
        Ok(edits) => edits,
        Err(error) => {
            manifest.leave().await;
            for loaded in &all_loaded {
                // What it failed with is what counts, if nobody can say.
                if let Ok(false) = loaded.checkpoints.is_kept(loaded.id).await {
                    let name = &loaded.part.checkpoint;
                    return Err(
                        error.context(format!("checkpoint {name:?} was deleted while it was restored"))
                    );
                }
            }
            return Err(error);
        }
    };
    let committed = manifest.committed_in_time(edits).await;
    manifest.leave().await;
    committed.map(drop).map_err(|error| error.context("naming the restored tables"))
}

async fn load<'a>(env: &Env, part: &'a Part) -> Result<Loaded<'a>> {
    let from = part.span.from.as_deref().unwrap_or_default();
    if part.span.to.as_deref().is_some_and(|to| from >= to) {
        let error = Error::new(ErrorKind::Invalid, format!("no key lies in a part: {}", part.span));
        return Err(error.advice("name the first key of the part, and the first one after it"));
    }
    let loaded = manifest::load(env, &part.source).await?;
    let checkpoints = Checkpoints::new(env, &part.source, loaded.incarnation, Epoch::NONE);
    let header = checkpoints.find(&part.checkpoint).await?;
    let state = checkpoints.load(&header).await?;
    let places = Places::of(&part.source, loaded.incarnation, &state)?;
    for name in &part.keyspaces {
        if !state.keyspaces().any(|keyspace| *keyspace.name == **name) {
            let message = format!("checkpoint {:?} has no keyspace {name:?}", part.checkpoint);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    Ok(Loaded { part, checkpoints, id: header.id, state, places })
}

/// The keyspaces of the target.
///
/// # Errors
/// `Invalid` when parts of one meet, or it has different settings in two sources.
fn plan(all: &[Loaded<'_>]) -> Result<BTreeMap<Arc<str>, Planned>> {
    let settings = KeyspaceOptions::default().to_manifest();
    let of_default =
        all.iter().find_map(|loaded| loaded.keyspaces().find(|keyspace| *keyspace.name == *DEFAULT_KEYSPACE));
    let settings = of_default.map_or(settings, |keyspace| (*keyspace.options).clone());
    let default = Planned { id: 0, stream: MAIN_STREAM, settings, reached: Vec::new() };
    let mut planned = BTreeMap::from([(Arc::from(DEFAULT_KEYSPACE), default)]);
    for loaded in all {
        for keyspace in loaded.keyspaces() {
            let next = u32::try_from(planned.len()).unwrap_or(u32::MAX);
            let known = planned.entry(Arc::clone(&keyspace.name)).or_insert_with(|| Planned {
                id: next,
                stream: keyspace.stream,
                settings: (*keyspace.options).clone(),
                reached: Vec::new(),
            });
            if known.settings.settings != keyspace.options.settings {
                let message = format!(
                    "keyspace {:?} has other settings in checkpoint {:?}",
                    keyspace.name, loaded.part.checkpoint
                );
                return Err(Error::new(ErrorKind::Invalid, message)
                    .expected(format!("{:?}", known.settings.settings))
                    .found(format!("{:?}", keyspace.options.settings))
                    .advice(
                        "give the keyspace the same settings in all sources (`tombolo db keyspace set`)",
                    ));
            }
            if known.stream != keyspace.stream {
                let (name, there) = (&keyspace.name, &loaded.part.checkpoint);
                let message = format!("keyspace {name:?} is of another stream in checkpoint {there:?}");
                return Err(Error::new(ErrorKind::Invalid, message)
                    .expected(format!("stream {}", known.stream))
                    .found(format!("stream {}", keyspace.stream))
                    .advice("make the keyspace with the same stream in all sources"));
            }
            known.settings.features |= keyspace.options.features;
            let span = &loaded.part.span;
            let Some(reached) = Reached::of(span, keyspace) else { continue };
            if let Some(met) = known.reached.iter().find(|other| other.meets(&reached)) {
                let (name, met) = (&keyspace.name, &met.span);
                let message = format!("parts of keyspace {name:?} may hold the same keys: {met}, and {span}");
                return Err(Error::new(ErrorKind::Invalid, message)
                    .advice("name for each part the first key of it, and the first one after it"));
            }
            known.reached.push(reached);
        }
    }
    Ok(planned)
}

/// Makes the target's tables.
struct Maker<'a> {
    env: &'a Env,
    manifest: &'a Manifest,
    target: &'a Arc<dyn ObjectStore>,
    planned: &'a BTreeMap<Arc<str>, Planned>,
}

/// What becomes of a table.
type Making<'a> = BoxFuture<'a, Result<Option<TableDescription>>>;

impl Maker<'_> {
    /// Copies and writes the tables; gives the edits that name them.
    async fn edits(&self, all_loaded: &[Loaded<'_>]) -> Result<Vec<Edit>> {
        let last = all_loaded.iter().map(|loaded| last_sequence(&loaded.state)).max();
        let last = last.unwrap_or(SequenceNumber::ZERO);
        let mut edits = Vec::new();
        let times = all_loaded.iter().map(|loaded| loaded.state.times()).reduce(later);
        edits.extend(
            times.filter(|times| *times != Times::default()).map(|times| Edit::Time { times, is_set: false }),
        );
        let mut by_id: Vec<_> = self.planned.iter().collect();
        by_id.sort_by_key(|(_, planned)| planned.id);
        for (name, planned) in by_id {
            let (id, stream, options) = (planned.id, planned.stream, planned.settings.clone());
            edits.push(Edit::KeyspaceCreated { id, name: name.to_string(), stream, options });
            if last > SequenceNumber::ZERO {
                edits.push(Edit::KeyspaceFlushed { id, sequence: last });
            }
        }
        let budget = MemoryBudget::private(BUDGET_BYTES)?;
        let cache = BlockCache::of(&budget);
        let (mut values, mut tables): (Vec<Making<'_>>, Vec<Making<'_>>) = (Vec::new(), Vec::new());
        let mut named = BTreeSet::new();
        for loaded in all_loaded {
            for keyspace in loaded.keyspaces() {
                let Some(planned) = self.planned.get(&keyspace.name) else { continue };
                let span = &loaded.part.span;
                let mut referred = BTreeSet::new();
                for table in keyspace.tables().filter(|table| span.meets_table(table)) {
                    referred.extend(table.referred().iter().map(|referred| referred.object));
                    if span.holds(table) || is_enabled(Mutant::PartReachesBeyond) {
                        tables.push(Box::pin(self.copy(loaded, table, planned.id)));
                    } else {
                        tables.push(Box::pin(self.cut(loaded, table, planned, &cache)));
                    }
                }
                for object in keyspace.values.objects() {
                    if referred.contains(&object.identity) && named.insert((planned.id, object.identity)) {
                        values.push(Box::pin(self.copy(loaded, object, planned.id)));
                    }
                }
            }
        }
        // Value objects are named before what refers to them.
        for making in [values, tables] {
            for made in all(making, COPIES_IN_FLIGHT_MAX).await {
                edits.extend(made?.map(Edit::TableAdded));
            }
        }
        if last > SequenceNumber::ZERO {
            let streams: BTreeSet<u32> = self.planned.values().map(|planned| planned.stream).collect();
            edits.extend(streams.into_iter().map(|stream| Edit::StreamReached { stream, sequence: last }));
        }
        Ok(edits)
    }

    fn fresh(&self) -> (TableName, tombolo_storage::ObjectName) {
        let name = self.manifest.fresh_table_name();
        (name, names::table(self.manifest.incarnation(), name))
    }

    /// Takes a table as it is, by reference where the target can.
    async fn copy(
        &self,
        loaded: &Loaded<'_>,
        table: &TableDescription,
        keyspace: u32,
    ) -> Result<Option<TableDescription>> {
        let (source, from) = loaded.places.locate(table);
        let (name, to) = self.fresh();
        let copy = Copy {
            source,
            target: self.target,
            epoch: self.manifest.epoch(),
            level: table.level,
            bytes: table.offset.saturating_add(table.length),
            how: HowToCopy::ByReference,
        };
        copy.run(&from, &to).await?;
        let properties = table.properties.without(PROPERTY_COLD);
        Ok(Some(TableDescription { name, keyspace, source: None, properties, ..table.clone() }))
    }

    /// Writes what of a table lies in the range, versions and all.
    async fn cut(
        &self,
        loaded: &Loaded<'_>,
        description: &TableDescription,
        planned: &Planned,
        cache: &Arc<BlockCache>,
    ) -> Result<Option<TableDescription>> {
        let span = &loaded.part.span;
        let (store, object) = loaded.places.locate(description);
        let table = Arc::new(Table::new(description.clone(), object, store, Arc::clone(cache)));
        let request = Request::new(Purpose::Compaction, Epoch::NONE);
        table.open(request).await?;
        let (name, object) = self.fresh();
        let options = KeyspaceOptions::from_manifest(&planned.settings)?;
        let options = table_options(
            &options,
            planned.id,
            false,
            description.oldest_unix_seconds,
            BLOCK_BYTES_BEYOND,
            piece_bytes(BUDGET_BYTES),
        );
        let new =
            NewTable { name, object, identity: self.env.random_u64(), level: description.level, options };
        let request_here = Request::new(Purpose::Compaction, self.manifest.epoch());
        let writer = TableWriter::create(&**self.target, request_here, new).await?;
        let mut writer = writer.with_eighths(description.eighths().is_some());
        if let Some(ranges) = table.ranges().filter(|ranges| !ranges.is_empty()) {
            let within = ranges.within(span.from.as_deref(), span.to.as_deref());
            if !within.is_empty() {
                writer.set_ranges(within)?;
            }
        }
        let mut cursor = table.iterator(request, false);
        let first = span.from.as_deref().unwrap_or_default();
        cursor.approach(InternalKey::new(first, Trailer::FIRST), false)?;
        let mut step = cursor.arrive()?;
        // Bytes of values to which it refers, of each object.
        let mut referred: BTreeMap<u64, u64> = BTreeMap::new();
        loop {
            if step == Step::Blocked {
                cursor.load().await?;
            }
            if !cursor.valid() || span.to.as_ref().is_some_and(|to| cursor.key().user_key >= &to[..]) {
                break;
            }
            let (key, value) = (cursor.key(), cursor.value());
            if let Some((reference, _)) = apart(key.trailer, value) {
                let damaged = |error| Error::format(table.object(), 0, error);
                let reference = Reference::decode(reference).map_err(damaged)?;
                *referred.entry(reference.object).or_default() += u64::from(reference.record_bytes);
            }
            writer.add(key, value)?;
            if writer.wants_flush() {
                writer.flush().await?;
            }
            step = cursor.next()?;
        }
        let written = writer.finish().await?;
        let Some(mut written) = written else { return Ok(None) };
        let part = |whole: Referred| Referred {
            bytes: referred.get(&whole.object).copied().unwrap_or_default(),
            ..whole
        };
        let parts: Vec<Referred> = description.referred().into_iter().map(part).collect();
        if !parts.is_empty() {
            let value = encode_referred(&parts);
            let property = Property { id: PROPERTY_VALUE_OBJECTS, is_critical: true, value: &value };
            written.properties = written.properties.with(property);
        }
        Ok(Some(written))
    }
}

/// Each time of two databases, the later one.
fn later(one: Times, other: Times) -> Times {
    Times {
        reached_ms: one.reached_ms.max(other.reached_ms),
        bound_ms: one.bound_ms.max(other.bound_ms),
        settled_ms: one.settled_ms.max(other.settled_ms),
    }
}
