//! Holders of a device, one after another or beside those who look: what one leaves is no other's.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tombolo_env::Env;
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, World};
use tombolo_format::zoned::{
    EMULATED_HEADER_BYTES, EmulatedHeader, Superblock, UNIT_HEADER_BYTES, Unit, ZoneSlot, encode_unit,
};
use tombolo_storage::conformance::log::entry;
use tombolo_storage::{
    ConfigurationChain, ErrorKind, Life, LogOffset, ObjectKind, ObjectStore, Placement, Purpose, Registry,
    Uri,
};
use tombolo_zoned::FormatOptions;
use tombolo_zoned::device::ZoneState;
use tombolo_zoned::tools::{self, Tool};

use crate::harness::{Case, SMALL, bytes_of, name, open, request};

const ZONE_BYTES: u64 = 256 << 10;
const SHAPE: &str = "zone=256KiB&zones=24&open=8&active=8";

fn place(directory: &Path) -> String {
    format!("zoned+file://{}/zones?{SHAPE}", directory.display())
}

fn tool(env: &Env, uri: &str) -> Tool {
    Tool::open(env, &Uri::parse(uri).expect("a URI")).expect("a tool")
}

fn placement() -> Placement {
    Placement::new(ObjectKind::Manifest, Life::Short)
}

fn header(file: &Path) -> EmulatedHeader {
    EmulatedHeader::decode(&std::fs::read(file).expect("a file")[..EMULATED_HEADER_BYTES]).expect("a header")
}

/// What a loss of power leaves of a zone: its write pointer, and bytes from `at` on.
fn leave(file: &Path, zone: u32, pointer: u64, at: u64, bytes: &[u8]) {
    let header = header(file);
    let opened = std::fs::File::options().write(true).open(file).expect("a file");
    let slot = ZoneSlot { zone, state: ZoneState::Closed.condition(), pointer };
    opened.write_all_at(&slot.encode(), header.slot_offset(zone)).expect("a slot");
    opened.write_all_at(bytes, header.zone_offset(zone) + at).expect("bytes");
}

fn zone_of(file: &Path, zone: u32) -> Vec<u8> {
    let (header, bytes) = (header(file), std::fs::read(file).expect("a file"));
    let begin = usize::try_from(header.zone_offset(zone)).expect("in memory");
    bytes[begin..begin + usize::try_from(header.zone_bytes).expect("in memory")].to_vec()
}

/// Two losses of power: the first takes a write pointer and leaves the batches behind it, the
/// second takes the batches that the next holder wrote in their places.
#[test]
fn batches_of_the_holder_before_do_not_come_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = (Env::real(), place(directory.path()), directory.path().join("zones"));
    let case = Case::new(0);
    let log_zones = || {
        let rows = tool(&env, &uri).look().expect("sound").zone_rows().expect("zones");
        rows.into_iter().filter(|row| row.used == "log").map(|row| (row.zone, row.written_bytes))
    };
    let (objects, logs) = open(&env, &uri);
    let log = env.block_on(logs.open(&case.context(&env, &objects, 1), 1)).expect("a log");
    let append = |log: &Arc<dyn tombolo_storage::Log>, numbers: std::ops::Range<u64>| {
        let mut end = LogOffset::ZERO;
        numbers.for_each(|number| end = log.append(0, &entry(number, 900)).expect("an append").end);
        log.sync(0, end).expect("a sync");
        end
    };
    let durable = append(&log, 0..20);
    let (zone, pointer) = log_zones().next().expect("a zone of log");
    append(&log, 20..150);
    drop((log, logs, objects));
    let before = zone_of(&file, zone);
    leave(&file, zone, pointer, 0, &[]);

    let named = case.chain.named();
    let (objects, logs) = open(&env, &uri);
    let context = case.context(&env, &objects, 2);
    let end = env.block_on(logs.fence(&context, &named[0], LogOffset::ZERO)).expect("fenced");
    assert_eq!(end, durable);
    let log = env.block_on(logs.open(&context, 1)).expect("a log");
    append(&log, 0..130);
    drop((log, logs, objects, context));
    let (zone, written) = log_zones().max_by_key(|(zone, _)| *zone).expect("a zone of log");
    // The first of its batches arrived, of the others what was there before them.
    let (from, first) = (usize::try_from(pointer).expect("small"), 64 << 10);
    let is_same_zone = zone_of(&file, zone)[..from] == before[..from];
    let at = if is_same_zone { from + first } else { first };
    leave(&file, zone, written.min(ZONE_BYTES), at as u64, &before[at..]);

    let (objects, logs) = open(&env, &uri);
    let context = case.context(&env, &objects, 3);
    let sealed = env.block_on(logs.fence(&context, &named[0], LogOffset::ZERO)).expect("nothing is missing");
    assert_eq!(sealed, durable);
}

/// A looker sees what the holder says after it had to go on in another metadata zone, though the
/// one before was not ended.
#[test]
fn a_look_follows_metadata_that_goes_on_elsewhere() {
    let world = World::new(1);
    let (holder, looker) = (world.process("holder"), world.process("looker"));
    let (objects, _) = open(&holder.env(), SMALL);
    let (looked, _) = open(&looker.env(), SMALL);
    let put = |number: u64| {
        let (objects, name) = (Arc::clone(&objects), name(format!("db/{number}")));
        async move {
            objects.put_if_absent(request(Purpose::Manifest), &name, placement(), bytes_of(number, 300)).await
        }
    };
    let listed = || {
        let page = looker.env().block_on(looked.list(request(Purpose::Open), "db/", None, 100));
        page.expect("a list").objects.len()
    };
    holder.env().block_on(put(1)).expect("a put");
    assert_eq!(listed(), 1);
    let is_metadata =
        |operation: &Operation| operation.kind == OperationKind::Write && operation.offset / ZONE_BYTES == 1;
    world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), is_metadata));
    holder.env().block_on(put(2)).expect("another zone takes it");
    assert_eq!(listed(), 2);
    holder.env().block_on(put(3)).expect("a put");
    assert_eq!(listed(), 3);
}

/// What a change of an unknown outcome may name is not emptied.
#[test]
fn nothing_is_emptied_while_an_outcome_is_unknown() {
    let world = World::new(1);
    let process = world.process("holder");
    let env = process.env();
    let (objects, _) = open(&env, SMALL);
    let put = |number: u64, bytes: usize| {
        let (objects, name) = (Arc::clone(&objects), name(format!("db/{number}")));
        let placement = Placement::new(ObjectKind::Table, Life::Short);
        async move {
            objects.put_if_absent(request(Purpose::Flush), &name, placement, bytes_of(number, bytes)).await
        }
    };
    env.block_on(put(1, 100)).expect("a put");
    let full = || {
        let rows = tool(&world.process("looker").env(), SMALL).look().expect("sound").zone_rows();
        rows.expect("zones")
            .iter()
            .filter(|row| row.state == "full" || row.written_bytes == ZONE_BYTES)
            .count()
    };
    assert_eq!(full(), 0);
    let is_metadata = |operation: &Operation| {
        operation.kind == OperationKind::Write && (1..4).contains(&(operation.offset / ZONE_BYTES))
    };
    world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), is_metadata).always());
    let error = env.block_on(put(2, 600_000)).expect_err("no metadata zone takes it");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(full() >= 2, "{} zones hold it still", full());
}

/// Log in zones beside those of the metadata is no damaged metadata.
#[test]
fn log_is_not_taken_for_metadata() {
    let case = Case::new(3);
    let process = case.world.process("writer");
    case.run(&process, 12);
    assert!(case.told.lock().errors.is_empty());
    process.kill();
    let core = tool(&case.world.process("looker").env(), SMALL).look().expect("sound");
    assert!(core.zone_rows().expect("zones").iter().any(|row| row.used == "log" && row.zone < 8));
    assert_eq!(core.notes(), [""; 0]);
    assert_eq!(tools::check(&core, true).expect("a check"), []);
}

/// A device with names and damaged metadata is not made anew, though no zone for data was written.
#[test]
fn a_device_with_names_is_not_formatted_at_first_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = (Env::real(), place(directory.path()), directory.path().join("zones"));
    let (objects, _) = open(&env, &uri);
    let put = |objects: &Arc<dyn ObjectStore>| {
        let name = name("db/empty");
        env.block_on(objects.put_if_absent(
            request(Purpose::Manifest),
            &name,
            placement(),
            bytes_of(0, 0).slice(..0),
        ))
    };
    put(&objects).expect("a put");
    drop(objects);
    let first = zone_of(&file, 0)[20] ^ 1;
    let opened = std::fs::File::options().write(true).open(&file).expect("a file");
    opened.write_all_at(&[first], header(&file).zone_offset(0) + 20).expect("a byte");
    assert_eq!(tool(&env, &uri).look().expect_err("damaged").kind(), ErrorKind::Corrupt);
    let (objects, _) = open(&env, &uri);
    assert_eq!(put(&objects).expect_err("damaged").kind(), ErrorKind::Corrupt);
}

/// A device restored over itself has the random number that it had: what it held before is none of
/// its own.
#[test]
fn a_restored_device_is_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = (Env::real(), place(directory.path()), directory.path().join("zones"));
    let (objects, _) = open(&env, &uri);
    for number in 0..10 {
        let name = name(format!("db/{number}"));
        let put =
            objects.put_if_absent(request(Purpose::Manifest), &name, placement(), bytes_of(number, 500));
        env.block_on(put).expect("a put");
    }
    for number in 0..8 {
        let name = name(format!("db/{number}"));
        env.block_on(objects.delete(request(Purpose::Collection), &name)).expect("a deletion");
    }
    drop(objects);
    let to = Registry::with_defaults()
        .open_object_store(&env, &Uri::parse("mem://backup-of-zones").expect("a URI"))
        .expect("a store");
    env.block_on(tools::backup(&env, &tool(&env, &uri), &*to)).expect("a backup");
    let before = zone_of(&file, 0);
    let options = FormatOptions { force: true, ..FormatOptions::default() };
    env.block_on(tools::restore(&env, &*to, &tool(&env, &uri), &options)).expect("restored");
    let names = tool(&env, &uri).look().expect("sound").name_rows("");
    // A write pointer that came without the bytes before it.
    let rows = tool(&env, &uri).look().expect("sound").zone_rows().expect("zones");
    let at = rows[0].written_bytes;
    leave(&file, 0, ZONE_BYTES, at, &before[usize::try_from(at).expect("small")..]);
    assert_eq!(tool(&env, &uri).look().expect("sound").name_rows(""), names);
}

/// The first unit of a metadata zone, made anew with a changed superblock.
fn with_superblock(file: &Path, from: u32, to: u32, change: impl FnOnce(&mut Vec<u8>, &mut u128)) {
    let zone = zone_of(file, from);
    let unit = Unit::decode(&zone).expect("a unit");
    let mut identity = tombolo_format::zoned::UnitIdentity { zone: to, ..unit.identity };
    let mut payload = unit.payload.to_vec();
    change(&mut payload, &mut identity.device);
    assert!(payload.len() + UNIT_HEADER_BYTES <= 4096);
    let made = encode_unit(identity, unit.kind, &payload, 4096);
    let pointer = if to == from { 8 * 4096 } else { 4096 };
    leave(file, to, pointer, 0, &made);
}

/// Devices that this version must not touch: typed errors, and nothing is written.
#[test]
fn other_devices_are_told_and_left_alone() {
    type Change = fn(&mut Vec<u8>, &mut u128);
    let newer: Change = |payload, _| payload[0] = 77;
    let features: Change = |payload, _| payload[4] = 1;
    let blocks: Change = |payload, _| {
        let made = Superblock { block_bytes: 8192, ..Superblock::decode(payload).expect("a superblock") };
        *payload = made.encode();
    };
    let zones: Change = |payload, _| {
        let made = Superblock { zones: 99, ..Superblock::decode(payload).expect("a superblock") };
        *payload = made.encode();
    };
    let foreign: Change = |_, device| *device ^= 1;
    for (what, to, change, kind) in [
        ("a newer version", 0, newer, ErrorKind::Unsupported),
        ("unknown features", 0, features, ErrorKind::Unsupported),
        ("another size of blocks", 0, blocks, ErrorKind::Unsupported),
        ("another number of zones", 0, zones, ErrorKind::Unsupported),
        ("the superblock of another device", 1, foreign, ErrorKind::Corrupt),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let (env, uri, file) = (Env::real(), place(directory.path()), directory.path().join("zones"));
        let put = || {
            let (objects, _) = open(&env, &uri);
            let name = name("db/1");
            let put = objects.put_if_absent(request(Purpose::Manifest), &name, placement(), bytes_of(1, 500));
            env.block_on(put)
        };
        put().expect("a put");
        with_superblock(&file, 0, to, change);
        let before = std::fs::read(&file).expect("a file");
        let looked = tool(&env, &uri).look().expect_err(what);
        assert_eq!(looked.kind(), kind, "{what}: {looked}");
        let refused = put().expect_err(what);
        assert_eq!(refused.kind(), kind, "{what}: {refused}");
        let format = tool(&env, &uri).format(&FormatOptions::default()).expect_err(what);
        assert_eq!(format.kind(), ErrorKind::AlreadyExists, "{what}: {format}");
        assert!(std::fs::read(&file).expect("a file") == before, "{what}: something was written");
    }
}

/// A backup whose lanes cannot be: told, and no panic.
#[test]
fn a_backup_with_impossible_lanes_is_told() {
    for (number, lanes, from) in
        [(0, ["7", "07"], 0), (1, ["18446744073709551615", "7"], 0), (2, ["8", "7"], u64::MAX)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let (env, uri) = (Env::real(), place(directory.path()));
        let uri_of_backup = Uri::parse(&format!("mem://impossible-lanes-{number}")).expect("a URI");
        let backup = Registry::with_defaults().open_object_store(&env, &uri_of_backup).expect("a store");
        let put = |own: String, bytes: Vec<u8>| {
            let own = name(own);
            let put = backup.put_if_absent(request(Purpose::Manifest), &own, placement(), bytes.into());
            env.block_on(put).expect("a put");
        };
        let lane = [&[0; 20][..], &u64::to_le_bytes(from), b"bytes"].concat();
        lanes.iter().for_each(|number| put(format!("lanes/{number}"), lane.clone()));
        put("device".into(), [&[3; 16][..], &0_u64.to_le_bytes(), &2_u64.to_le_bytes()].concat());
        let options = FormatOptions::default();
        let restored = env.block_on(tools::restore(&env, &*backup, &tool(&env, &uri), &options));
        assert_eq!(restored.expect_err("impossible").kind(), ErrorKind::Corrupt);
    }
}
