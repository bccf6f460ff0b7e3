//! Errors of a device, each at each of its operations; zones that go bad; a device that fills.

use std::io::ErrorKind as Io;
use std::sync::Arc;

use tombolo_env::Env;
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, World};
use tombolo_storage::{ErrorKind, Life, ObjectKind, Placement, Purpose, PutOutcome};
use tombolo_zoned::device::ZoneState;
use tombolo_zoned::device::emulated::Emulated;

use crate::harness::{Case, SMALL, bytes_of, file, is_expected, name, open, request};

#[test]
fn an_error_of_each_operation_loses_nothing() {
    let whole = Case::new(0);
    let process = whole.world.process("writer");
    whole.run(&process, 14);
    let all = process.operations();
    for number in (1..=all).step_by(7) {
        let case = Case::new(number);
        let process = case.world.process("writer");
        process.fail_at(number, Io::Other);
        case.run(&process, 14);
        for error in &case.told.lock().errors {
            assert!(is_expected(error), "operation {number}: {error}");
        }
        process.kill();
        drop(process);
        case.check();
    }
}

/// Wears a zone out behind the back of the process that holds the device.
fn wear_out(env: &Env, zone: u32, state: ZoneState) {
    let device = Emulated::open(env, file()).expect("a device");
    device.wear_out(zone, state).expect("worn");
}

#[test]
fn a_zone_that_goes_offline_with_data_in_it_is_told() {
    let world = World::new(1);
    let process = world.process("writer");
    let written = process.env();
    process
        .run(async move {
            let (objects, _) = open(&written, SMALL);
            let placement = Placement::new(ObjectKind::Table, Life::Short);
            for number in 0..20 {
                let (name, bytes) = (name(format!("db/{number}")), bytes_of(number, 60_000));
                let put = objects.put_if_absent(request(Purpose::Flush), &name, placement, bytes);
                assert_eq!(put.await.expect("a put"), PutOutcome::Created);
            }
        })
        .expect("it lives");
    process.kill();
    for zone in 3..24 {
        wear_out(
            &world.process("fate").env(),
            zone,
            if zone < 5 { ZoneState::Offline } else { ZoneState::ReadOnly },
        );
    }
    let process = world.process("reader");
    let read = process.env();
    process
        .run(async move {
            let (objects, _) = open(&read, SMALL);
            let (mut sound, mut told) = (0, 0);
            for number in 0..20 {
                match objects.read(request(Purpose::Get), &name(format!("db/{number}")), 0..u64::MAX).await {
                    Ok(bytes) => {
                        assert_eq!(bytes, bytes_of(number, 60_000));
                        sound += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                        told += 1;
                    }
                }
            }
            assert!(sound > 0 && told > 0, "{sound} are sound, {told} damaged");
            // No zone takes a write any more.
            let placement = Placement::new(ObjectKind::Table, Life::Short);
            let fresh = name("new");
            let put = objects.put_if_absent(request(Purpose::Flush), &fresh, placement, bytes_of(1, 9));
            assert_eq!(put.await.expect_err("no zone").kind(), ErrorKind::OutOfSpace);
        })
        .expect("it lives");
}

/// A device that fills refuses users first; deleting goes on, and room comes back.
#[test]
fn a_device_that_fills_says_so_and_recovers() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let (objects, _) = open(&env, SMALL);
            let placement = Placement::new(ObjectKind::Table, Life::Short);
            let put = |number: u64, purpose: Purpose| {
                let objects = Arc::clone(&objects);
                async move {
                    let bytes = bytes_of(number, 100_000);
                    objects
                        .put_if_absent(request(purpose), &name(format!("db/{number}")), placement, bytes)
                        .await
                }
            };
            let mut number = 0;
            let full = loop {
                match put(number, Purpose::Flush).await {
                    Ok(_) => number += 1,
                    Err(error) => break error,
                }
                assert!(number < 100, "it never fills");
            };
            assert_eq!(full.kind(), ErrorKind::OutOfSpace, "{full}");
            put(500, Purpose::Compaction).await.expect("compaction has room still");
            for gone in (0..number).step_by(2) {
                let name = name(format!("db/{gone}"));
                objects.delete(request(Purpose::Collection), &name).await.expect("deleting needs no zone");
            }
            // No zone is dead: what lives is moved, and all of it is there.
            for more in 600..600 + number / 4 {
                put(more, Purpose::Flush).await.expect("room was made");
            }
            for kept in (1..number).step_by(2).chain(600..600 + number / 4) {
                let name = name(format!("db/{kept}"));
                let read =
                    objects.read(request(Purpose::Get), &name, 0..u64::MAX).await.expect("it is there");
                assert_eq!(read, bytes_of(kept, 100_000));
            }
        })
        .expect("it lives");
}

/// A read that is on its way gets what it asked for, or learns that it is gone, whatever is deleted
/// and written meanwhile.
pub fn reads_and_resets_together() {
    for seed in 0..12 {
        let world = World::new(seed);
        let process = world.process("both");
        let env = process.env();
        process
            .run(async move {
                let (objects, _) = open(&env, SMALL);
                let placement = Placement::new(ObjectKind::Table, Life::Short);
                let put = |number: u64| {
                    let objects = Arc::clone(&objects);
                    async move {
                        let bytes = bytes_of(number, 256_000);
                        let name = name(format!("db/{number}"));
                        objects.put_if_absent(request(Purpose::Flush), &name, placement, bytes).await
                    }
                };
                put(0).await.expect("a put");
                for number in 0..20 {
                    let (reading, env_of) = (Arc::clone(&objects), env.clone());
                    let (completer, done) = tombolo_env::completion();
                    let task = env.spawn(tombolo_env::TaskClass::Foreground, "read", async move {
                        env_of.yield_now().await;
                        let name = name(format!("db/{number}"));
                        completer.complete(reading.read(request(Purpose::Get), &name, 0..u64::MAX).await);
                    });
                    env.yield_now().await;
                    let gone = name(format!("db/{number}"));
                    objects.delete(request(Purpose::Collection), &gone).await.expect("a deletion");
                    put(number + 1).await.expect("a put");
                    match done.await.expect("a result") {
                        Ok(bytes) => assert_eq!(bytes, bytes_of(number, 256_000)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                    drop(task);
                }
            })
            .expect("it lives");
    }
}

#[test]
fn reads_get_what_they_asked_for_while_zones_are_reset() {
    reads_and_resets_together();
}

/// A zone that only holds bytes on their way, since all that was named in it is gone, stays.
pub fn deletes_beside_a_writer() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let (objects, _) = open(&env, SMALL);
            let placement = Placement::new(ObjectKind::Table, Life::Short);
            let flush = request(Purpose::Flush);
            objects
                .put_if_absent(flush, &name("first"), placement, bytes_of(1, 40_000))
                .await
                .expect("a put");
            let mut writer = objects.create(flush, &name("second"), placement).await.expect("a writer");
            // Fills the zone in which the first lies, and goes on in the next.
            writer.append(bytes_of(2, 600_000)).await.expect("an append");
            objects.delete(request(Purpose::Collection), &name("first")).await.expect("a deletion");
            for number in 0..4 {
                let third = name(format!("third/{number}"));
                objects.put_if_absent(flush, &third, placement, bytes_of(3, 200_000)).await.expect("a put");
            }
            writer.finish().await.expect("the end");
            let read =
                objects.read(request(Purpose::Get), &name("second"), 0..u64::MAX).await.expect("a read");
            assert!(read == bytes_of(2, 600_000));
        })
        .expect("it lives");
}

#[test]
fn a_zone_is_not_reset_under_a_writer() {
    deletes_beside_a_writer();
}

/// A sync that fails makes the log go on elsewhere: what it had not made durable is written again.
pub fn failed_syncs_of_the_log() {
    for skip in (6..50).step_by(2) {
        let case = Case::new(skip);
        let process = case.world.process("writer");
        let is_sync = |operation: &Operation| operation.kind == OperationKind::Sync;
        case.world.inject(Fault::new(Action::Fail(Io::Other), is_sync).after(skip));
        case.run(&process, 10);
        case.world.clear_faults();
        case.world.host(0).power_loss();
        drop(process);
        case.check();
    }
}

#[test]
fn a_failed_sync_is_made_good_elsewhere() {
    failed_syncs_of_the_log();
}
