//! Ingest: `bring → check → stage → one log entry`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, all};
use tombolo_format::batch::INGESTED_TABLES_MAX;
use tombolo_format::key::ENTRY_FEATURES_APART;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::location::location_of;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, ObjectName, ObjectStore, Purpose, Request, Result, Uri};

use super::TablePlace;
use crate::engine::{Background, Engine, KeyspaceInfo, Store};
use crate::event::Event;
use crate::flush::delete_unnamed_by_name;
use crate::lifecycle;
use crate::manifest::names;
use crate::recovery::{Copy, HowToCopy};
use crate::table::Table;
use crate::version::LEVEL_LAST;
use crate::write::{self, Ingestion};

/// Tables that are brought and checked at once.
const AT_ONCE: usize = 4;

/// How often an exchange looks whether snapshots are open, and between two looks.
const SNAPSHOT_LOOKS: u32 = 20;
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(20);

/// How tables come into a database. In each case they get fresh names there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bring {
    /// By reference where the store can (a hard link, a copy that the service makes by itself),
    /// else byte by byte. The given object stays; nobody may write to it any more. The default.
    #[default]
    Link,
    /// Byte by byte: what becomes of the given object afterwards is of no importance.
    Copy,
    /// As [`Bring::Link`], and the given object is deleted once the database has it durably.
    Move,
}

/// How tables are ingested. Set the fields that matter and take the rest from [`Default`]: later
/// versions may have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestOptions {
    /// How they come into the database.
    pub bring: Bring,
    /// Tables of one keyspace may hold the same keys: those of a later one take the place of those
    /// of an earlier one. Default: tables that meet are refused, as their order would be chance.
    pub ordered: bool,
    /// Only the ends of each table are looked at, and not every byte. Damage that a whole look
    /// would have refused is found by the reads that come to it. Default: every byte is checked.
    pub trusted: bool,
    /// The tables come to lie behind all that their keyspaces hold, as if they had been there
    /// first: a key has what a table says only where the keyspace has nothing for it, not even a
    /// delete. Needs [`KeyspaceOptions::ingest_behind`](crate::KeyspaceOptions::ingest_behind);
    /// such tables meet neither each other nor those that were ingested behind before. Default:
    /// over it.
    pub behind: bool,
}

/// What was ingested, so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestReport {
    /// Tables that were brought and checked.
    pub tables: u64,
    /// Tables to ingest.
    pub tables_wanted: u64,
    /// The bytes of those brought.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
    /// The sequence number from which on reads see them; 0 before that.
    pub sequence: u64,
}

/// Called after each table.
pub(crate) type Progress = Box<dyn FnMut(&IngestReport) + Send>;

/// What to ingest, and where.
pub(crate) struct IngestRequest {
    pub(crate) tables: Vec<(Arc<KeyspaceInfo>, TablePlace)>,
    /// Keyspaces whose content the tables take the place of.
    pub(crate) exchanged: Vec<Arc<KeyspaceInfo>>,
    pub(crate) options: IngestOptions,
    pub(crate) progress: Progress,
}

impl IngestRequest {
    /// All keyspaces that it is about, each once.
    fn keyspaces(&self) -> Vec<Arc<KeyspaceInfo>> {
        let all = self.tables.iter().map(|(keyspace, _)| keyspace).chain(&self.exchanged);
        all.map(|keyspace| (keyspace.id, Arc::clone(keyspace)))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect()
    }

    /// # Errors
    /// `Invalid` for nothing, or too much; `NotFound` for a keyspace that was dropped.
    fn check(&self) -> Result<()> {
        if self.tables.is_empty() && self.exchanged.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "no table to ingest").advice("name one at least"));
        }
        self.check_places()?;
        if self.tables.len() > INGESTED_TABLES_MAX {
            let message = format!("{} tables at once; at most {INGESTED_TABLES_MAX}", self.tables.len());
            return Err(Error::new(ErrorKind::Invalid, message).advice("make larger tables"));
        }
        self.keyspaces().iter().try_for_each(|keyspace| keyspace.check())
    }
}

impl IngestRequest {
    /// # Errors
    /// `Invalid` where tables cannot lie behind, or take the place of, what a keyspace holds.
    fn check_places(&self) -> Result<()> {
        if self.options.behind {
            self.tables.iter().try_for_each(|(keyspace, _)| keyspace.check_behind())?;
            if self.exchanged.is_empty() {
                return Ok(());
            }
            let error = Error::new(ErrorKind::Invalid, "nothing is behind what an exchange ends");
            return Err(error.advice("exchange the keyspace, or ingest behind what it holds"));
        }
        let kept = self.exchanged.iter().find(|keyspace| keyspace.options().ingest_behind);
        let Some(keyspace) = kept else { return Ok(()) };
        let message = format!("keyspace {:?} keeps all deletes, which an exchange would end", keyspace.name);
        Err(Error::new(ErrorKind::Invalid, message)
            .advice("set ingest_behind=false first, after which nothing can be ingested behind it"))
    }
}

/// A table where it was given.
struct Given {
    keyspace: Arc<KeyspaceInfo>,
    shown: String,
    store: Arc<dyn ObjectStore>,
    object: ObjectName,
    /// Its name in the database.
    name: TableName,
}

/// Makes tables part of the database: all of them, durably, or none.
///
/// # Errors
/// Those of bad tables, of the stores and of a write.
pub(crate) async fn ingest(engine: Arc<Engine>, mut request: IngestRequest) -> Result<IngestReport> {
    engine.check_writable()?;
    request.check()?;
    let keyspaces = request.keyspaces();
    name_keyspaces(&engine, &keyspaces).await?;
    let given = given(&engine, &request.tables)?;
    let mut progress = std::mem::replace(&mut request.progress, Box::new(|_report| ()));
    let report = IngestReport { tables_wanted: given.len() as u64, ..IngestReport::default() };
    let telling = Mutex::new((report, &mut progress));
    let brought = bring_all(&engine, &given, request.options, &telling).await;
    let (mut report, _) = telling.into_inner();
    let layered = brought.and_then(|tables| layers(tables, &given, request.options));
    let layers = match layered {
        Ok(layers) => layers,
        Err(error) => {
            delete_unnamed_by_name(&engine, given.iter().map(|given| given.name)).await;
            return Err(error);
        }
    };
    stage(&engine, &layers).await?;
    let ingestion = Arc::new(Ingestion::new(layers, keyspaces, request.exchanged));
    if let Err(error) = show(&engine, &ingestion).await {
        if !ingestion.may_be_logged() {
            give_up(&engine, &ingestion).await;
        }
        return Err(error);
    }
    report.sequence = ingestion.taken().map_or(0, |number| number.0);
    let IngestReport { tables, bytes, entries, sequence, .. } = report;
    engine.events.tell(|| Event::Ingested { tables, bytes, entries, sequence });
    if request.options.bring == Bring::Move {
        remove_given(&given).await;
    }
    Ok(report)
}

/// A keyspace that only the log knows is told to the manifest, which names no table of it before.
pub(super) async fn name_keyspaces(engine: &Arc<Engine>, keyspaces: &[Arc<KeyspaceInfo>]) -> Result<()> {
    let state = engine.manifest.state();
    if keyspaces.iter().all(|keyspace| state.keyspace(keyspace.id).is_some()) {
        return Ok(());
    }
    // Keyspaces of all streams are made in the main one.
    let main = engine.main_engine();
    let last = write::seal(&main);
    lifecycle::flushed(&main, last).await
}

/// Opens the stores of the places.
fn given(engine: &Store, tables: &[(Arc<KeyspaceInfo>, TablePlace)]) -> Result<Vec<Given>> {
    let mut opened: BTreeMap<Uri, Arc<dyn ObjectStore>> = BTreeMap::new();
    let mut open = |uri: &Uri| match opened.get(uri) {
        Some(store) => Ok(Arc::clone(store)),
        None => {
            let store = location_of(&*engine.objects)?.open(uri)?;
            opened.insert(uri.clone(), Arc::clone(&store));
            Ok(store)
        }
    };
    let one = |(keyspace, place): &(Arc<KeyspaceInfo>, TablePlace)| {
        let (store, object) = place.resolve(&mut open)?;
        let (keyspace, name) = (Arc::clone(keyspace), engine.manifest.fresh_table_name());
        Ok(Given { keyspace, shown: place.to_string(), store, object, name })
    };
    tables.iter().map(one).collect()
}

/// What was brought so far, and who is told.
type Telling<'a> = Mutex<(IngestReport, &'a mut Progress)>;

/// Brings all into the database's own store, and checks them there: the checked bytes are those
/// that will be read. On an error some may be there.
async fn bring_all(
    engine: &Background,
    given: &[Given],
    options: IngestOptions,
    telling: &Telling<'_>,
) -> Result<Vec<TableDescription>> {
    let bring = |given| -> BoxFuture<'_, Result<TableDescription>> {
        Box::pin(async move {
            let table = bring(engine, given, options).await;
            let table = table.map_err(|error| of_given(error, &given.shown))?;
            let mut telling = telling.lock();
            let (report, progress) = &mut *telling;
            report.tables += 1;
            report.bytes += table.length;
            report.entries += table.entries;
            progress(report);
            Ok(table)
        })
    };
    all(given.iter().map(bring).collect(), AT_ONCE).await.into_iter().collect()
}

/// Damage of a table that is brought in is none of the database: nothing names its copy.
fn of_given(error: Error, shown: &str) -> Error {
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "check the table's place; a folder of exported tables is brought in by `tombolo db import-tables`"
        }
        ErrorKind::Corrupt => {
            "the table that was given, or its copy, is damaged, and nothing of the database is: ingest it again; \
                if it fails again, make the table again"
        }
        _ => return error.context(format!("ingesting {shown}")),
    };
    error.context(format!("ingesting {shown}")).advice(advice)
}

async fn bring(engine: &Background, given: &Given, options: IngestOptions) -> Result<TableDescription> {
    let to = names::table(engine.context.incarnation, given.name);
    let copy = Copy {
        source: Arc::clone(&given.store),
        target: &engine.objects,
        epoch: engine.context.epoch,
        level: if options.behind { LEVEL_LAST } else { 0 },
        bytes: 0,
        how: if options.bring == Bring::Copy { HowToCopy::Bytes } else { HowToCopy::ByReference },
    };
    copy.run(&given.object, &to).await?;
    let tables = engine.versions.tables();
    let request = engine.request(Purpose::Verify);
    let place = (given.name, given.keyspace.id);
    let (table, operator) =
        Table::describe_outside(&engine.objects, &tables.cache, request, &to, place, options.trusted).await?;
    check_features(engine, given, &table)?;
    check_operator(given, operator.as_deref())?;
    let is_behind = options.behind && !is_enabled(Mutant::BehindLiesOver);
    Ok(TableDescription { level: if is_behind { LEVEL_LAST } else { 0 }, ..table })
}

/// # Errors
/// `Unsupported` for kinds of entries that the keyspace does not take.
fn check_features(engine: &Store, given: &Given, table: &TableDescription) -> Result<()> {
    let state = engine.manifest.state();
    let allowed = state.keyspace(given.keyspace.id).map_or(0, |keyspace| keyspace.options.features);
    // Values that lie elsewhere stay there.
    let apart = table.features & ENTRY_FEATURES_APART;
    if apart != 0 {
        let error = Error::new(ErrorKind::Unsupported, "the table's values lie in objects of their own");
        return Err(error.advice("make it with TableFileBuilder, which keeps values in the table"));
    }
    // What they lay over when they were written may be destroyed.
    if table.expiry().is_some_and(|expiry| expiry.written_ms != u64::MAX) {
        let error = Error::new(ErrorKind::Unsupported, "the table has merge operands that end");
        return Err(error.advice("merge them with Keyspace::merge_until_with, or give values that end"));
    }
    let beyond = table.features & !allowed;
    if beyond == 0 {
        return Ok(());
    }
    let message = format!(
        "the table has entries of kinds that keyspace {:?} does not take: feature bits {beyond:#x}",
        given.keyspace.name
    );
    Err(Error::new(ErrorKind::Unsupported, message)
        .advice("change the keyspace's settings with `tombolo db keyspace set`, which lets it take them"))
}

/// # Errors
/// `Invalid` for operands that mean something else than those of the keyspace.
fn check_operator(given: &Given, operator: Option<&str>) -> Result<()> {
    let Some(operator) = operator.filter(|_| !is_enabled(Mutant::IngestIgnoresOperator)) else {
        return Ok(());
    };
    let own = given.keyspace.options().operator.as_ref().map(ToString::to_string);
    if own.as_deref() == Some(operator) {
        return Ok(());
    }
    let message = format!("the table has operands for another merge operator than {:?}", given.keyspace.name);
    Err(Error::new(ErrorKind::Invalid, message)
        .expected(own.unwrap_or_else(|| "none, as the keyspace names no operator".to_owned()))
        .found(operator)
        .advice("ingest it into a keyspace with that operator, or make the table of whole values"))
}

/// Sorts tables into layers: those of one meet nowhere within a keyspace, and a later one lies over
/// what it meets of the earlier ones. Behind is one layer.
///
/// # Errors
/// `Invalid` when tables meet and nobody said that their order counts, or all come to lie behind.
fn layers(
    tables: Vec<TableDescription>,
    given: &[Given],
    options: IngestOptions,
) -> Result<Vec<Vec<TableDescription>>> {
    let ordered = options.ordered && !options.behind;
    /// By keyspace and first key: the last key, and which table.
    type Layer = BTreeMap<(u32, Bytes), (Bytes, usize)>;
    let mut spans: Vec<Layer> = Vec::new();
    let mut layers: Vec<Vec<TableDescription>> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        let meets = |layer: &Layer| {
            let until = (table.keyspace, table.last_key.clone());
            let ((keyspace, _), (last, other)) = layer.range(..=until).next_back()?;
            (*keyspace == table.keyspace && *last >= table.first_key).then_some(*other)
        };
        let met =
            spans.iter().enumerate().rev().find_map(|(at, layer)| meets(layer).map(|other| (at, other)));
        let at = match met {
            None => 0,
            Some((at, _)) if ordered => at + 1,
            Some((_, other)) => return Err(meeting(&given[other], &given[number], &table)),
        };
        if at == layers.len() {
            layers.push(Vec::new());
            spans.push(Layer::new());
        }
        spans[at].insert((table.keyspace, table.first_key.clone()), (table.last_key.clone(), number));
        layers[at].push(table);
    }
    Ok(layers)
}

#[cold]
fn meeting(one: &Given, other: &Given, table: &TableDescription) -> Error {
    let message = format!("{} and {} may hold the same keys", one.shown, other.shown);
    Error::new(ErrorKind::Invalid, message)
        .found(format!("{:?} to {:?} in the second", table.first_key, table.last_key))
        .advice("make tables that do not meet, or say that later ones take the place of earlier ones")
}

/// Names the tables, which are part of nothing yet.
pub(super) async fn stage(engine: &Background, layers: &[Vec<TableDescription>]) -> Result<()> {
    let edits: Vec<_> = layers.iter().flatten().cloned().map(Edit::TableStaged).collect();
    if edits.is_empty() {
        return Ok(());
    }
    let Err(error) = engine.manifest.committed_in_time(edits).await else { return Ok(()) };
    let may_be_named =
        matches!(error.kind(), ErrorKind::Fenced | ErrorKind::OutcomeUnknown | ErrorKind::Closed);
    if !may_be_named {
        delete_unnamed_by_name(engine, layers.iter().flatten().map(|table| table.name)).await;
    }
    // A drop was recorded between the look at the keyspace and the record.
    let gone = |table: &TableDescription| engine.catalog.by_id(table.keyspace).is_none();
    if !may_be_named && layers.iter().flatten().any(gone) {
        return Err(Error::new(ErrorKind::NotFound, "a keyspace was dropped meanwhile").source(error));
    }
    Err(error)
}

/// Has the log show the tables. An exchange, and tables behind, wait a moment for snapshots that
/// operations of the database itself have open.
pub(super) async fn show(engine: &Arc<Engine>, ingestion: &Arc<Ingestion>) -> Result<()> {
    let mut attempt = 1;
    loop {
        match write::ingest(engine, ingestion).await {
            Err(error) if error.kind() == ErrorKind::Conflict && attempt < SNAPSHOT_LOOKS => {
                attempt += 1;
                engine.env.sleep(SNAPSHOT_PAUSE).await;
            }
            shown => return shown,
        }
    }
}

/// Gives up tables that no log entry shows, nor ever will: none was appended.
///
/// A keyspace may be dropped meanwhile, and its staged tables go with it. The manifest refuses to
/// give them up a second time, and with them all others of the same edits: then each is given up
/// by itself.
pub(super) async fn give_up(background: &Background, ingestion: &Ingestion) {
    let manifest = &background.manifest;
    let state = manifest.state();
    let ours = ingestion.layers.iter().flatten().map(|table| table.name);
    let staged = ours.filter(|name| state.staged().any(|table| table.description.name == *name));
    let edits: Vec<_> = staged.map(|name| Edit::TableObsolete { name }).collect();
    if edits.is_empty() {
        return;
    }
    let is_refused = |error: &Error| {
        !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::OutcomeUnknown | ErrorKind::Closed)
    };
    let mut ended = manifest.committed_in_time(edits.clone()).await.map(drop);
    if ended.as_ref().is_err_and(is_refused) {
        let alone = |edit| -> BoxFuture<'_, Result<u64>> { Box::pin(manifest.committed_in_time(vec![edit])) };
        let each = all(edits.into_iter().map(alone).collect(), AT_ONCE).await;
        ended = each.into_iter().filter_map(Result::err).find(|error| !is_refused(error)).map_or(Ok(()), Err);
    }
    if let Err(error) = ended {
        tracing::warn!(%error, "tables that were not ingested are given up by the next opening");
    }
    background.work.raise();
}

/// Deletes what was moved. The rest is the giver's still, and harmless.
async fn remove_given(given: &[Given]) {
    let request = Request::new(Purpose::Collection, Epoch::NONE);
    for Given { store, object, shown, .. } in given {
        if let Err(error) = store.delete(request, object).await {
            tracing::warn!(%error, table = shown, "a table that was moved stays where it was too");
        }
    }
}

#[cfg(test)]
mod tests;
