//! What metadata costs, in operations of the device: of a put while generations change, and of
//! opening a device that holds few objects, or many.

use std::sync::Arc;

use tombolo_env::simulated::World;
use tombolo_storage::{Life, ObjectKind, Placement, Purpose, Registry, Uri};
use tombolo_zoned::tools::Tool;
use tombolo_zoned::{Shared, register_with};

use crate::harness::{bytes_of, name, request};

const DEVICE: &str = "zoned+file:///zones?zone=4MiB&zones=32";

/// What a number of objects costs.
#[derive(Debug)]
struct Costs {
    /// The most operations of the device in a put, work beside it included.
    put: u64,
    /// Operations of looking at the device afterwards.
    look: u64,
    /// How often a generation of metadata ended.
    generations: u64,
    /// Of these, such as a put had to wait for from the first write of the snapshot on.
    waited_for: u64,
}

fn costs(objects: u64) -> Costs {
    let world = World::new(1);
    world.set_preemption_probability(0.0);
    let host = world.add_host("host");
    let process = host.process("writer");
    let env = process.env();
    let (mut registry, devices) = (Registry::with_defaults(), Arc::new(Shared::default()));
    register_with(&mut registry, &devices);
    let uri = Uri::parse(DEVICE).expect("a URI");
    let store = registry.open_object_store(&env, &uri).expect("a store");
    let placement = Placement::new(ObjectKind::Table, Life::Medium);
    let mut most = 0;
    for number in 0..objects {
        let before = process.mutations();
        let (store, name) = (store.clone(), name(format!("db/tables/{number:016x}")));
        let put = async move {
            store.put_if_absent(request(Purpose::Flush), &name, placement, bytes_of(number, 1000)).await
        };
        process.run(put).expect("it lives").expect("a put");
        // The first one makes the device.
        if number > 0 {
            most = most.max(process.mutations() - before);
        }
    }
    let holder = Tool::with(&devices, &env, &uri).expect("a tool").look().expect("a device");
    let waited_for = holder.activity().0.metadata.rolls_waited_for;
    drop((holder, store));
    process.kill();
    let looker = host.process("looker");
    let core = Tool::open(&looker.env(), &uri).expect("a tool").look().expect("a device");
    Costs { put: most, look: looker.operations(), generations: core.identity().2, waited_for }
}

/// A write of the emulated device is two: the bytes, and the zone's state. A put of any kind makes
/// six. Where a generation ends, a put waits for the end of the next one's snapshot, which was
/// written beside the puts before, and never for all of it.
#[test]
fn neither_a_put_nor_a_mount_has_an_operation_for_each_object() {
    let (few, many) = (costs(100), costs(10_000));
    assert!(few.generations == 1 && many.generations > 10, "{few:?}, {many:?}");
    assert_eq!((few.waited_for, many.waited_for), (0, 0));
    assert!(few.put <= 8 && many.put <= 32, "{few:?}, {many:?}");
    assert!(few.look <= 16 && many.look <= 64, "{few:?}, {many:?}");
}
