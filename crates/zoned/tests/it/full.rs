//! A device that is full: of bytes, so that what lives has to be moved; and of metadata.

use std::collections::BTreeMap;
use std::io::ErrorKind as Io;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_env::simulated::{Action, Crash, Fault, Operation, OperationKind, Process, World};
use tombolo_storage::{
    Error, ErrorKind, Life, ObjectKind, ObjectStore, Placement, Purpose, PutOutcome, Registry, Result, Uri,
};
use tombolo_zoned::tools::{self, Tool};
use tombolo_zoned::{Shared, register_with};

use crate::harness::{SMALL, bytes_of, is_expected, name, open, request};

/// As few zones as there may be: the shortest way to a full device.
const FEW: &str = "zoned+file:///zones?zone=256KiB&zones=16&open=8&active=8";
const OBJECT_BYTES: usize = 100_000;
/// Each so manieth operation is tried.
const STRIDE: usize = 47;

fn placement() -> Placement {
    Placement::new(ObjectKind::Table, Life::Short)
}

/// Objects by number, and whether they must be there; of the others nothing is known.
type Known = BTreeMap<u64, bool>;

/// A device in which every second object is dead, so that the next ones have others moved.
struct Full {
    world: World,
    process: Process,
    known: Arc<Mutex<Known>>,
    devices: Arc<Shared>,
    objects: Arc<dyn ObjectStore>,
    /// The first number that is not used.
    next: u64,
}

impl Full {
    fn new(seed: u64) -> Full {
        let world = World::new(seed);
        let process = world.process("writer");
        let (mut registry, devices) = (Registry::with_defaults(), Arc::new(Shared::default()));
        register_with(&mut registry, &devices);
        let uri = Uri::parse(FEW).expect("a URI");
        let objects = registry.open_object_store(&process.env(), &uri).expect("a store");
        let mut full = Full { world, process, known: Arc::default(), devices, objects, next: 0 };
        loop {
            match full.put(full.next) {
                Some(Ok(_)) => full.next += 1,
                Some(Err(error)) if error.kind() == ErrorKind::OutOfSpace => break,
                other => panic!("{other:?}"),
            }
        }
        for number in (0..full.next).step_by(2) {
            let (objects, name) = (Arc::clone(&full.objects), name(format!("db/{number}")));
            let gone = full
                .process
                .run(async move { objects.delete(request(Purpose::Collection), &name).await })
                .expect("it lives");
            gone.expect("deleting needs no zone");
            full.known.lock().insert(number, false);
        }
        full
    }

    /// Of a process that ends there is no result.
    fn put(&self, number: u64) -> Option<Result<PutOutcome>> {
        let objects = Arc::clone(&self.objects);
        let put = self.process.run(async move {
            let (name, bytes) = (name(format!("db/{number}")), bytes_of(number, OBJECT_BYTES));
            objects.put_if_absent(request(Purpose::Flush), &name, placement(), bytes).await
        });
        if let Some(Ok(_)) = put {
            self.known.lock().insert(number, true);
        }
        put
    }

    /// Puts for which others have to be moved; the errors that they met.
    fn put_more(&self) -> Vec<Error> {
        let puts = (self.next..self.next + 4).filter_map(|number| self.put(number));
        puts.filter_map(Result::err).collect()
    }

    fn relocated_zones(&self) -> u64 {
        let uri = Uri::parse(FEW).expect("a URI");
        let core = Tool::with(&self.devices, &self.process.env(), &uri).and_then(|tool| tool.look());
        core.expect("a device").activity().0.relocated_zones
    }

    /// What was told is so, and the device is sound.
    fn check(&self, env: &Env, objects: &dyn ObjectStore) {
        for (number, is_there) in &*self.known.lock() {
            let name = name(format!("db/{number}"));
            match env.block_on(objects.read(request(Purpose::Get), &name, 0..u64::MAX)) {
                Ok(bytes) => {
                    assert!(bytes == bytes_of(*number, OBJECT_BYTES), "object {number} reads wrong");
                    assert!(is_there, "object {number} was deleted and is back");
                }
                Err(error) => assert!(!is_there && error.kind() == ErrorKind::NotFound, "{number}: {error}"),
            }
        }
    }

    fn check_anew(&self) {
        let process = self.world.process("successor");
        let env = process.env();
        let (objects, _) = open(&env, FEW);
        self.check(&env, &*objects);
        let core = Tool::open(&env, &Uri::parse(FEW).expect("a URI")).and_then(|tool| tool.look());
        let found = tools::check(&core.expect("a device"), true).expect("a check");
        assert!(!found.iter().any(|found| found.is_damage), "{found:?}");
    }
}

/// The operations while something is moved: from the first to the last.
fn operations_of_moving(seed: u64) -> std::ops::RangeInclusive<u64> {
    let full = Full::new(seed);
    assert_eq!(full.relocated_zones(), 0);
    let before = full.process.operations();
    assert_eq!(full.put_more().len(), 0);
    assert!(full.relocated_zones() > 0, "nothing was moved");
    before + 1..=full.process.operations()
}

#[test]
fn an_error_while_zones_are_moved_loses_nothing() {
    for number in operations_of_moving(1).step_by(STRIDE) {
        let full = Full::new(1);
        full.process.fail_at(number, Io::Other);
        for error in full.put_more() {
            assert!(is_expected(&error), "operation {number}: {error}");
        }
        full.world.clear_faults();
        full.check(&full.process.env(), &*full.objects);
        full.process.kill();
        full.check_anew();
    }
}

/// Takes the power away at every so manieth operation while something is moved.
pub fn crash_while_zones_are_moved(every: usize) {
    for number in operations_of_moving(1).step_by(every) {
        let full = Full::new(1);
        full.process.crash_at(number, Crash::PowerLoss);
        full.put_more();
        full.process.kill();
        full.world.clear_faults();
        full.check_anew();
    }
}

#[test]
fn nothing_is_lost_with_the_power_while_zones_are_moved() {
    crash_while_zones_are_moved(STRIDE);
}

/// Damaged bytes stay where they are, and so does the zone that they lie in.
#[test]
fn damaged_bytes_are_not_moved() {
    let full = Full::new(1);
    let is_read = |operation: &Operation| operation.kind == OperationKind::Read;
    full.world.inject(Fault::new(Action::Fail(Io::InvalidData), is_read).always());
    let errors = full.put_more();
    assert!(errors.len() == 4 && full.relocated_zones() == 0, "{errors:?}");
    full.world.clear_faults();
    full.check(&full.process.env(), &*full.objects);
    assert_eq!(full.put_more().len(), 0);
}

/// Objects of which most are soon gone, beside some that stay: what stays is never moved, since it
/// shares no zone with the others.
pub fn what_lives_longer_lies_apart() {
    let world = World::new(1);
    let process = world.process("writer");
    let (mut registry, devices) = (Registry::with_defaults(), Arc::new(Shared::default()));
    register_with(&mut registry, &devices);
    let (env, uri) = (process.env(), Uri::parse(SMALL).expect("a URI"));
    let objects = registry.open_object_store(&env, &uri).expect("a store");
    let holds = Arc::clone(&objects);
    let history = async move {
        for round in 0..50_u64 {
            let lives = [(Life::Forever, 20_000), (Life::Short, 90_000), (Life::Short, 90_000)];
            for (number, (life, bytes)) in (3 * round..).zip(lives) {
                let (name, bytes) = (name(format!("db/{number}")), bytes_of(number, bytes));
                let placement = Placement::new(ObjectKind::Table, life);
                objects.put_if_absent(request(Purpose::Flush), &name, placement, bytes).await?;
            }
            for old in round.checked_sub(3).into_iter().flat_map(|old| [3 * old + 1, 3 * old + 2]) {
                objects.delete(request(Purpose::Collection), &name(format!("db/{old}"))).await?;
            }
        }
        Ok::<_, Error>(())
    };
    process.run(history).expect("it lives").expect("there is room");
    let core = Tool::with(&devices, &env, &uri).and_then(|tool| tool.look()).expect("a device");
    assert_eq!(core.activity().0.relocated_bytes, 0, "bytes were moved");
    // Several times what the device takes.
    assert!(core.activity().0.data_bytes > 8 << 20);
    drop(holds);
}

#[test]
fn nothing_is_moved_where_lives_are_known() {
    what_lives_longer_lies_apart();
}

/// More names than a generation of metadata has room for are refused, before a snapshot of them
/// would fill its zone and each roll be followed by another. Deleting goes on, and makes room.
#[test]
fn metadata_that_is_full_is_told_and_does_not_roll_for_ever() {
    let world = World::new(1);
    let process = world.process("writer");
    let (objects, _) = open(&process.env(), SMALL);
    let long = |number: u64| name(format!("db/{number:0>500}"));
    let put = |number: u64| {
        let objects = Arc::clone(&objects);
        process
            .run(async move {
                let (purpose, none) = (request(Purpose::Manifest), bytes_of(0, 9).slice(..0));
                objects.put_if_absent(purpose, &long(number), placement(), none).await
            })
            .expect("it lives")
    };
    let mut next = 0;
    let full = loop {
        match put(next) {
            Ok(_) => next += 1,
            Err(error) => break error,
        }
        assert!(next < 2000, "it is never full");
    };
    assert_eq!(full.kind(), ErrorKind::OutOfSpace, "{full}");
    assert!(full.to_string().contains("metadata is full"), "{full}");
    let before = process.operations();
    for number in next..next + 20 {
        assert_eq!(put(number).expect_err("still full").kind(), ErrorKind::OutOfSpace);
    }
    assert_eq!(process.operations(), before, "a refused change was written");
    for number in (0..next).step_by(2) {
        let objects = Arc::clone(&objects);
        let gone = process
            .run(async move { objects.delete(request(Purpose::Collection), &long(number)).await })
            .expect("it lives");
        gone.expect("deleting needs no room");
    }
    for number in next..next + 10 {
        put(number).expect("room was made");
    }
    process.kill();
    let process = world.process("successor");
    let (objects, _) = open(&process.env(), SMALL);
    for number in 0..next + 10 {
        let found = process.env().block_on(objects.length(request(Purpose::Get), &long(number)));
        let is_there = number % 2 == 1 || number >= next;
        assert_eq!(found.is_ok(), is_there, "object {number}: {found:?}");
    }
}
