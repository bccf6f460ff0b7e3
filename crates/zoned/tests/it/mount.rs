//! What metadata costs, in operations of the device: of a put while generations change, and of
//! opening a device that holds few objects, or many.

use tombolo_env::simulated::World;
use tombolo_storage::{Life, ObjectKind, Placement, Purpose, Uri};
use tombolo_zoned::tools::Tool;

use crate::harness::{bytes_of, name, open, request};

const DEVICE: &str = "zoned+file:///zones?zone=4MiB&zones=32";

/// Operations of the device: the most of a put, and those of looking at it afterwards; and how
/// often a generation of metadata ended.
fn costs(objects: u64) -> (u64, u64, u64) {
    let world = World::new(1);
    world.set_preemption_probability(0.0);
    let host = world.add_host("host");
    let process = host.process("writer");
    let env = process.env();
    let (store, _) = open(&env, DEVICE);
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
    process.kill();
    let looker = host.process("looker");
    let uri = Uri::parse(DEVICE).expect("a URI");
    let core = Tool::open(&looker.env(), &uri).expect("a tool").look().expect("a device");
    (most, looker.operations(), core.identity().2)
}

/// A write of the emulated device is two: the bytes, and the zone's state. A put of any kind makes
/// six; where a generation ends, it waits for the rest of the next one, which was made beside the
/// puts before.
#[test]
fn neither_a_put_nor_a_mount_has_an_operation_for_each_object() {
    let (few, many) = (costs(100), costs(10_000));
    assert!(few.2 == 1 && many.2 > 10, "generations: {few:?}, {many:?}");
    assert!(few.0 <= 8 && many.0 <= 32, "operations of a put: {few:?}, {many:?}");
    assert!(few.1 <= 16 && many.1 <= 64, "operations of opening: {few:?}, {many:?}");
}
