//! The part of another store in which cold tables of a database lie.
//!
//! Invariants:
//! 1. Nothing is asked of it before it is used, so that a database opens, is written and is read
//!    where its data is hot while the store is out of reach.
//! 2. Its objects count only once its marker was read: an empty folder where a store was
//!    mounted, or another database's part, is an error, and no table is taken for missing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::cold::{ColdStore, MARKER_BYTES, Marker, decode_marker, encode_marker};
use tombolo_storage::location::{StoreLocation, location_of};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::object::read_whole;
use tombolo_storage::{
    Epoch, Error, ErrorKind, FailureDomain, Incarnation, Life, Listed, Meter, ObjectKind, ObjectName,
    ObjectStore, ObjectWriter, Placement, Purpose, PutOutcome, Request, Result, StorePerformance,
    StoreTraits, Survival, Uri,
};

use super::driver::io::Io;
use super::names;

/// See the module's documentation. A store whose root is the database's folder.
pub(crate) struct ColdObjects {
    cold: ColdStore,
    location: Option<StoreLocation>,
    opened: OnceLock<Arc<dyn ObjectStore>>,
    is_known: AtomicBool,
}

impl std::fmt::Debug for ColdObjects {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ColdObjects").field("cold", &self.cold).finish_non_exhaustive()
    }
}

/// The store of a URI with the folder of a database behind it.
fn folder(location: &StoreLocation, place: &str, database: u64) -> Result<Arc<dyn ObjectStore>> {
    let mut uri = Uri::parse(place)?;
    uri.rest = format!("{}/{database:016x}", uri.rest.trim_end_matches('/'));
    location.open(&uri)
}

/// Finds the part of the cold store at `place` that belongs to a database, or makes it under a
/// number by chance; and says what the manifest is to name. `named` is what it names now.
///
/// # Errors
/// `Invalid` for a URI that holds a secret; those of the store.
pub(crate) async fn prepare(
    own: &Arc<dyn ObjectStore>,
    place: &str,
    database: u64,
    named: Option<u64>,
    random: u64,
) -> Result<ColdStore> {
    let uri = Uri::parse(place)?;
    if uri.to_string() != uri.shown() {
        let error = Error::new(ErrorKind::Invalid, format!("{} holds a secret", uri.shown()));
        return Err(error.advice(
            "the manifest keeps the URI of the cold store: give the secret by the environment instead",
        ));
    }
    let store = folder(location_of(&**own)?, place, database)?;
    let request = Request::new(Purpose::Open, Epoch::NONE);
    if let Some(id) = named {
        // It has moved.
        let objects =
            ColdObjects::new(own, &ColdStore { id, database, place: place.to_owned(), is_own: true });
        objects.ready(request).await.map_err(|error| objects.told(error))?;
        return Ok(objects.cold);
    }
    let marker = Marker { id: random, database };
    let placement = Placement::new(ObjectKind::Manifest, Life::Long);
    let put = store
        .put_if_absent(request, &names::cold_marker(), placement, encode_marker(marker).into())
        .await
        .map_err(|error| error.context(format!("beginning the cold store {}", uri.shown())));
    // Of unknown outcome, or put by an earlier opening: the marker that is there counts.
    if let Err(error) = put
        && error.kind() != ErrorKind::OutcomeUnknown
    {
        return Err(error);
    }
    let found = read_marker(&*store, request).await?;
    if found.database != database {
        return Err(not_ours(&uri.shown(), database, found.database));
    }
    Ok(ColdStore { id: found.id, database, place: place.to_owned(), is_own: true })
}

/// Deletes all that a life has in its part of a cold store, and the marker last. To be called again
/// is harmless.
///
/// # Errors
/// Those of the store.
pub(crate) async fn delete_all(io: &Io, incarnation: Incarnation) -> Result<u64> {
    let objects = match io.list_all(&names::table_prefix(incarnation)).await {
        Ok(objects) => objects,
        // The marker went last: it was done before.
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(0),
        Err(error) => return Err(error),
    };
    for object in &objects {
        io.delete(object).await?;
    }
    io.delete(&names::cold_marker()).await?;
    Ok(objects.len() as u64)
}

fn not_ours(place: &str, expected: u64, found: u64) -> Error {
    Error::new(ErrorKind::Invalid, format!("{place} is not the cold store of this database"))
        .expected(format!("a marker of {expected:016x}"))
        .found(format!("{found:016x}"))
        .advice("mount or name the store that the database was used with")
}

async fn read_marker(store: &dyn ObjectStore, request: Request) -> Result<Marker> {
    let name = names::cold_marker();
    let bytes = read_whole(store, request, &name, MARKER_BYTES as u64).await?;
    decode_marker(&bytes).map_err(|error| Error::format(&name, 0, error))
}

impl ColdObjects {
    /// The store that a manifest names, as it is found from the database in `own`.
    pub(crate) fn new(own: &Arc<dyn ObjectStore>, cold: &ColdStore) -> ColdObjects {
        let location = own.location().cloned();
        let objects = ColdObjects {
            cold: cold.clone(),
            location,
            opened: OnceLock::new(),
            is_known: AtomicBool::new(false),
        };
        // What fails is told to who uses it.
        let _opened = objects.open();
        objects
    }

    /// What the manifest says of it.
    pub(crate) fn named(&self) -> &ColdStore {
        &self.cold
    }

    fn open(&self) -> Result<Arc<dyn ObjectStore>> {
        if let Some(store) = self.opened.get() {
            return Ok(Arc::clone(store));
        }
        let Some(location) = &self.location else {
            return Err(Error::new(ErrorKind::Unsupported, "where the database lies is not known")
                .advice("open it by its URI: a cold store is found from there"));
        };
        let store = folder(location, &self.cold.place, self.cold.database)?;
        Ok(Arc::clone(self.opened.get_or_init(|| store)))
    }

    fn told(&self, error: Error) -> Error {
        error.context(format!("in the cold store {}", self.describe()))
    }

    /// The store, once it is known to be the right one: a read, the first time.
    async fn ready(&self, request: Request) -> Result<Arc<dyn ObjectStore>> {
        let store = self.open()?;
        if self.is_known.load(Ordering::Acquire) || is_enabled(Mutant::ColdStoreUnmarked) {
            return Ok(store);
        }
        let marker = match read_marker(&*store, request).await {
            Ok(marker) => marker,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let message = format!("{} holds no cold tables of this database", self.describe());
                return Err(Error::new(ErrorKind::Invalid, message)
                    .source(error)
                    .advice("mount or name the store that the database was used with"));
            }
            Err(error) => return Err(error),
        };
        if (marker.id, marker.database) != (self.cold.id, self.cold.database) {
            return Err(not_ours(&self.describe(), self.cold.id, marker.id));
        }
        self.is_known.store(true, Ordering::Release);
        Ok(store)
    }
}

impl ObjectStore for ColdObjects {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.create(request, name, placement).await.map_err(|error| self.told(error))
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.put_if_absent(request, name, placement, bytes).await.map_err(|error| self.told(error))
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.read(request, name, range).await.map_err(|error| self.told(error))
        })
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.read_ranges(request, name, ranges).await.map_err(|error| self.told(error))
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.length(request, name).await.map_err(|error| self.told(error))
        })
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.list(request, prefix, after, limit).await.map_err(|error| self.told(error))
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.delete(request, name).await.map_err(|error| self.told(error))
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.copy(request, from, to).await.map_err(|error| self.told(error))
        })
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let store = self.ready(request).await.map_err(|error| self.told(error))?;
            store.sweep(request).await.map_err(|error| self.told(error))
        })
    }

    fn meter(&self) -> Option<&Arc<Meter>> {
        self.opened.get()?.meter()
    }

    fn performance(&self) -> Option<StorePerformance> {
        self.open().ok()?.performance()
    }

    fn traits(&self) -> StoreTraits {
        self.open().map_or_else(
            |_| StoreTraits { must_prove_put_if_absent: true, lists_may_walk: true },
            |store| store.traits(),
        )
    }

    fn survival(&self) -> Survival {
        self.open().map_or_else(
            |error| Survival {
                store: self.describe(),
                domain: FailureDomain::Process,
                accepted: format!("not known: {error}"),
                durable: format!("not known: {error}"),
                notes: Vec::new(),
            },
            |store| store.survival(),
        )
    }

    fn describe(&self) -> String {
        Uri::parse(&self.cold.place).map_or_else(|_| self.cold.place.clone(), |uri| uri.shown())
    }
}
