//! What bad input gets: typed errors, and nothing repaired in silence.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tombolo_env::Env;
use tombolo_format::zoned::{EmulatedHeader, ZoneSlot};
use tombolo_storage::{ErrorKind, Life, ObjectKind, ObjectStore, Placement, Purpose, Uri};
use tombolo_zoned::FormatOptions;
use tombolo_zoned::device::ZoneState;
use tombolo_zoned::device::emulated::Emulated;
use tombolo_zoned::tools::{self, Tool};

use crate::harness::{bytes_of, name, open, request};

const SHAPE: &str = "zone=256KiB&zones=24";

fn uri(directory: &Path) -> String {
    format!("zoned+file://{}/zones?{SHAPE}", directory.display())
}

fn tool(env: &Env, uri: &str) -> Tool {
    Tool::open(env, &Uri::parse(uri).expect("a URI")).expect("a tool")
}

/// A device whose metadata has come to a generation, and which holds one object or many.
fn rolled(directory: &Path, wanted: u64, keeps: bool) -> (Env, String, PathBuf) {
    let (env, uri) = (Env::real(), uri(directory));
    let (objects, _) = open(&env, &uri);
    let placement = Placement::new(ObjectKind::Manifest, Life::Short);
    let (mut generation, mut kept) = (0, Vec::new());
    for number in 0..1000 {
        let own = name(format!("db/{number}"));
        let put = objects.put_if_absent(request(Purpose::Manifest), &own, placement, bytes_of(number, 500));
        env.block_on(put).expect("a put");
        generation = tool(&env, &uri).look().expect("sound").identity().2;
        if generation >= wanted {
            break;
        }
        kept.push(own);
        // Those of the first generation are deleted in the second.
        let is_due = !keeps && generation > 1;
        for gone in kept.split_off(if is_due { 0 } else { kept.len() }) {
            env.block_on(objects.delete(request(Purpose::Collection), &gone)).expect("a deletion");
        }
    }
    assert_eq!(generation, wanted);
    (env, uri, directory.join("zones"))
}

/// A device with some objects.
fn filled(directory: &Path, puts: u64) -> (Env, String, PathBuf) {
    let (env, uri) = (Env::real(), uri(directory));
    let (objects, _) = open(&env, &uri);
    let placement = Placement::new(ObjectKind::Manifest, Life::Short);
    for number in 0..puts {
        let name = name(format!("db/{number}"));
        let put = objects.put_if_absent(request(Purpose::Manifest), &name, placement, bytes_of(number, 500));
        env.block_on(put).expect("a put");
    }
    (env, uri, directory.join("zones"))
}

fn header(file: &Path) -> EmulatedHeader {
    EmulatedHeader::decode(&std::fs::read(file).expect("a file")[..64]).expect("a header")
}

/// Changes a byte of a zone.
fn damage(file: &Path, zone: u32, at: u64) {
    let offset = header(file).zone_offset(zone) + at;
    let file = std::fs::File::options().read(true).write(true).open(file).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("a byte");
}

fn kind_of_look(env: &Env, uri: &str) -> Option<ErrorKind> {
    tool(env, uri).look().err().map(|error| error.kind())
}

#[test]
fn formatting_over_data_needs_force() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, _) = filled(directory.path(), 3);
    let refused = tool(&env, &uri).format(&FormatOptions::default()).expect_err("data is there");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    let (objects, _) = open(&env, &uri);
    env.block_on(objects.length(request(Purpose::Get), &name("db/1"))).expect("it is there still");
    drop(objects);
    tool(&env, &uri).format(&FormatOptions { force: true, ..FormatOptions::default() }).expect("forced");
    let (objects, _) = open(&env, &uri);
    let gone = env.block_on(objects.length(request(Purpose::Get), &name("db/1"))).expect_err("gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
}

#[test]
fn devices_that_cannot_serve_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real();
    let format = |shape: &str| {
        let uri = format!("zoned+file://{}/none?{shape}", directory.path().display());
        tool(&env, &uri).format(&FormatOptions::default()).expect_err("refused")
    };
    for (shape, what) in [
        ("zone=256KiB&zones=15", "16 are the fewest"),
        ("zone=1MiB&zones=20&capacity=128KiB", "are the fewest"),
        ("zone=256KiB&zones=20&open=5", "6 are needed"),
        ("zone=256KiB&zones=20&active=3", "6 are needed"),
    ] {
        let error = format(shape);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{shape}: {error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(!directory.path().join("none").exists(), "a device that is refused is not made");
    // A plain file is no device of zones, and no block device.
    let plain = directory.path().join("plain");
    std::fs::write(&plain, vec![7; 10_000]).expect("a file");
    for (uri, kind) in [
        (format!("zoned+file://{}", plain.display()), ErrorKind::Invalid),
        (format!("zoned://{}", plain.display()), ErrorKind::Unsupported),
        (format!("zoned+file://{}/absent", directory.path().display()), ErrorKind::NotFound),
        ("zoned:///dev/no-such-device".to_owned(), ErrorKind::NotFound),
    ] {
        assert_eq!(kind_of_look(&env, &uri), Some(kind), "{uri}");
    }
    for wrong in [
        "zoned+file:///",
        "zoned+file:///x?zone=abc",
        "zoned+file:///x?zones=4",
        "zoned:///dev/x?zone=4MiB",
        "zoned+file:///x?zone=3",
        "zoned+file:///x?frobnicate=1",
        "zoned+file:///x?zone=4MiB&block=1000",
        "file:///x",
    ] {
        let opened = Tool::open(&env, &Uri::parse(wrong).expect("a URI"));
        match opened {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}"),
            // Zones without their size make nothing.
            Ok(tool) => assert_eq!(tool.look().expect_err("absent").kind(), ErrorKind::NotFound, "{wrong}"),
        }
    }
}

/// Of each metadata zone, and of all: damage is told, and the whole ones are found.
#[test]
fn damaged_metadata_is_told() {
    for (zones, expected) in [
        (&[][..], None),
        // The second generation is in zone 1: zone 0 holds the one before, zone 2 nothing.
        (&[0], None),
        (&[1], Some(ErrorKind::Corrupt)),
        (&[2], None),
        (&[0, 1], Some(ErrorKind::Corrupt)),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let (env, uri, file) = rolled(directory.path(), 2, true);
        for zone in zones {
            damage(&file, *zone, 20);
        }
        assert_eq!(kind_of_look(&env, &uri), expected, "{zones:?}");
    }
}

/// A bad unit before another is damage, wherever it lies; the last one is a torn write.
pub fn damaged_units() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = filled(directory.path(), 8);
    let copy = std::fs::read(&file).expect("a file");
    // Block 0 is the superblock, 1 and 2 the snapshot, transactions follow.
    for block in 0..8 {
        std::fs::write(&file, &copy).expect("a file");
        damage(&file, 0, block * 4096 + 70);
        assert_eq!(kind_of_look(&env, &uri), Some(ErrorKind::Corrupt), "block {block}");
    }
}

#[test]
fn a_bad_unit_before_another_is_damage() {
    damaged_units();
}

/// What an earlier life of a metadata zone left is no part of the next, though the write pointer
/// came back.
pub fn stale_units() {
    let directory = tempfile::tempdir().expect("a directory");
    // The fourth generation is in zone 0 again, and its units where those of the first were.
    let (env, uri, file) = rolled(directory.path(), 4, false);
    let before = tool(&env, &uri).look().expect("sound").name_rows("");
    let header = header(&file);
    let slot = ZoneSlot { zone: 0, state: ZoneState::Closed.condition(), pointer: header.capacity_bytes };
    let opened = std::fs::File::options().write(true).open(&file).expect("a file");
    opened.write_all_at(&slot.encode(), header.slot_offset(0)).expect("a slot");
    let after = tool(&env, &uri).look().expect("sound");
    assert_eq!(after.name_rows(""), before);
    drop(after);
    // And it works on from there.
    let (objects, _) = open(&env, &uri);
    let placement = Placement::new(ObjectKind::Manifest, Life::Short);
    let fresh = name("new");
    let put = objects.put_if_absent(request(Purpose::Manifest), &fresh, placement, bytes_of(1, 10));
    env.block_on(put).expect("a put");
    drop(objects);
    assert_eq!(tool(&env, &uri).look().expect("sound").name_rows("").len(), before.len() + 1);
}

#[test]
fn what_an_earlier_life_of_a_zone_left_is_ignored() {
    stale_units();
}

#[test]
fn newer_and_other_devices_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = filled(directory.path(), 3);
    // A device whose states are damaged is no answer.
    let copy = std::fs::read(&file).expect("a file");
    let mut bytes = copy.clone();
    bytes[4096 + 5] ^= 1;
    std::fs::write(&file, &bytes).expect("a file");
    assert_eq!(kind_of_look(&env, &uri), Some(ErrorKind::Invalid));
    std::fs::write(&file, &copy).expect("a file");
    // Worn metadata zones.
    let device = Emulated::open(&env, &file).expect("a device");
    device.wear_out(0, ZoneState::Offline).expect("worn");
    drop(device);
    assert!(kind_of_look(&env, &uri).is_some());
}

#[test]
fn a_damaged_object_is_found_by_a_scrub_and_by_a_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, uri, file) = filled(directory.path(), 5);
    let core = tool(&env, &uri).look().expect("sound");
    assert_eq!(tools::check(&core, true).expect("a check"), []);
    let row = core.name_rows("db/2").into_iter().next().expect("an object");
    drop(core);
    let (zone, at, _) = row.extents[0];
    damage(&file, zone, at + 100);
    let core = tool(&env, &uri).look().expect("the metadata is sound");
    assert_eq!(tools::check(&core, false).expect("a check"), [], "nobody has read it");
    let found = tools::check(&core, true).expect("a check");
    assert_eq!(found.len(), 1);
    assert!(found[0].is_damage && found[0].names == ["db/2"], "{found:?}");
    let (objects, _) = open(&env, &uri);
    let read = env.block_on(objects.read(request(Purpose::Get), &name("db/2"), 0..u64::MAX));
    assert_eq!(read.expect_err("damaged").kind(), ErrorKind::Corrupt);
}

#[test]
fn one_process_holds_a_device_and_others_look() {
    use tombolo_env::simulated::World;
    let world = World::new(3);
    let (one, other) = (world.process("one"), world.process("other"));
    let placement = Placement::new(ObjectKind::Manifest, Life::Short);
    let put = |objects: std::sync::Arc<dyn ObjectStore>, number: u64| async move {
        let name = name(format!("db/{number}"));
        let bytes = bytes_of(number, 300);
        objects.put_if_absent(request(Purpose::Manifest), &name, placement, bytes).await
    };
    let (first, _) = open(&one.env(), crate::harness::SMALL);
    let (second, second_log) = open(&other.env(), crate::harness::SMALL);
    let of = |process: &tombolo_env::simulated::Process| process.env();
    of(&one).block_on(put(first.clone(), 1)).expect("a put");
    let refused = of(&other).block_on(put(second.clone(), 2)).expect_err("another holds it");
    assert_eq!(refused.kind(), ErrorKind::InUse, "{refused}");
    // It sees all objects, while the metadata rolls under it.
    for number in 2..80 {
        of(&one).block_on(put(first.clone(), number)).expect("a put");
        let listed =
            of(&other).block_on(second.list(request(Purpose::Open), "db/", None, 1000)).expect("a list");
        assert_eq!(listed.objects.len() as u64, number);
        let read =
            of(&other).block_on(second.read(request(Purpose::Get), &name(format!("db/{number}")), 0..999));
        assert_eq!(read.expect("a read"), bytes_of(number, 300));
    }
    drop(second_log);
    one.kill();
    of(&other).block_on(put(second.clone(), 500)).expect("the first has ended");
}
