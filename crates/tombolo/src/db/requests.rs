//! What an open database has asked of its object store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo_storage::{Counted, ObjectStore};

use super::Db;

/// Requests for objects since the database was opened, its opening included.
/// `tombolo_storage::price` says what they would cost.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Requests {
    /// By purpose and kind. The log is among them where it is kept as objects, and reads of tables
    /// that a clone shares.
    ///
    /// Of a store behind a network each request that goes out counts, as its service counts them:
    /// parts of an upload, pages of a list, attempts that were made again. Of others each call. A
    /// ready-made store that several databases share is counted for all of them.
    pub counted: Vec<Counted>,
    /// Whether they go over a network, to a service that may charge for them.
    pub go_over_network: bool,
    /// Since opening began.
    pub since_open: Duration,
    /// Bytes of the tables that the manifest names, those that wait for deletion or are kept by
    /// pins included. Logs and the manifest itself are not.
    pub space_bytes: u64,
}

impl Db {
    /// What was asked of the object store since opening: requests and bytes by purpose and kind.
    /// Makes no request.
    pub fn requests(&self) -> Requests {
        let engine = self.engine();
        let Some(meter) = engine.objects.meter() else { return Requests::default() };
        let state = engine.manifest.state();
        let named =
            state.keyspaces().flat_map(|keyspace| keyspace.objects()).map(|table| table.length).sum::<u64>();
        // The databases that have them pay for those.
        let (_, shared) = state.shared_tables();
        let unneeded = state.unneeded().map(|table| table.description.length).sum::<u64>();
        let mut counted = meter.counted();
        // A clone reads most of what it names under its sources.
        let places = engine.versions.tables().places.lock().clone();
        let sources = places.sources().filter_map(|place| place.store.meter());
        let cold = places.cold().filter_map(|cold| cold.meter());
        for more in sources.chain(cold).flat_map(|meter| meter.counted()) {
            match counted.iter_mut().find(|of| (of.purpose, of.kind) == (more.purpose, more.kind)) {
                Some(of) => of.add(&more),
                None => counted.push(more),
            }
        }
        let opening = Duration::from_nanos(engine.counters.open_nanos.load(Ordering::Relaxed));
        Requests {
            counted,
            go_over_network: meter.goes_over_network(),
            since_open: engine.env.now().since(engine.assembled) + opening,
            space_bytes: (named + unneeded).saturating_sub(shared),
        }
    }
}
