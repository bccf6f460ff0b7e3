use std::sync::Barrier;
use std::thread;

use tombolo_env::Env;
use tombolo_format::zoned::EmulatedHeader;
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request};

use super::ZonedObjectStore;
use crate::instance::{DevicePlace, Zoned};

/// Who waits for the zones keeps nobody from changing the state: else a reader, a change and a
/// reset could each wait for another.
#[test]
fn a_read_that_waits_for_zones_holds_no_state() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real();
    let header = EmulatedHeader {
        block_bytes: 4096,
        zone_bytes: 256 << 10,
        capacity_bytes: 256 << 10,
        zones: 24,
        open_max: 0,
        active_max: 0,
    };
    let place = DevicePlace::File(directory.path().join("zones"));
    let store = ZonedObjectStore::new(&env, Zoned::new(&env, place, Some(header)), String::new());
    let (name, request) = (ObjectName::new("a").expect("a name"), Request::new(Purpose::Get, Epoch::NONE));
    let placement = Placement::new(ObjectKind::Table, Life::Short);
    env.block_on(store.put_if_absent(request, &name, placement, vec![1; 100].into())).expect("a put");
    let core = store.device.held().expect("held");
    let begun = Barrier::new(2);
    thread::scope(|threads| {
        let zones = core.zones.lock();
        let reader = threads.spawn(|| {
            begun.wait();
            env.block_on(store.length(request, &name))
        });
        begun.wait();
        let is_free = (0..100_000).all(|_| {
            thread::yield_now();
            core.state.try_write().is_some()
        });
        drop(zones);
        assert_eq!(reader.join().expect("it ends").expect("a length"), 100);
        assert!(is_free, "the state was held");
    });
}
