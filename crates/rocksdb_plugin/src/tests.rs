use std::time::Duration;

use tombolo::{Env, ErrorKind, Life, TakeOver};
use tombolo_files::Ask;
use tombolo_files::door::Claim;
use tombolo_storage::Priority;

use crate::Fs;
use crate::ask::{TomboloAsk, life_of};
use crate::space::{UNBOUNDED_BYTES, free_space};
use crate::statistics::statistics;
use crate::status::code;
use crate::uri::Settings;

#[test]
fn a_uri_says_which_database() {
    let all = b"tombolo://?store=file:///data/db%26x&log=near://a,b,c&takeover=always&claim=change&info_log=/var/log/x\
        &set=memory_bytes:67108864&lane_memory_bytes=1048576";
    let settings = Settings::parse(all).unwrap();
    assert_eq!(
        (settings.store.as_str(), settings.log.as_deref()),
        ("file:///data/db&x", Some("near://a,b,c"))
    );
    assert_eq!((settings.take_over, settings.claim), (TakeOver::Always, Claim::WithChange));
    assert_eq!((settings.options.memory_bytes, settings.files.lane_memory_bytes), (64 << 20, 1 << 20));
    assert_eq!(Settings::parse(b"tombolo:///?store=mem://x").unwrap().take_over, TakeOver::Never);
    for wrong in [
        &b"tombolo://"[..],
        b"tombolo://?log=mem://x",
        b"tombolo://?store=mem://x&takeover=perhaps",
        b"tombolo://?store=mem://x&claim=never",
        b"tombolo://?store=mem://x&colour=red",
        b"tombolo://?store=mem://x%2",
        b"tombolo://?store=mem://x&info_log=here",
        b"tombolo://?store=mem://x&set=memory_bytes",
        b"s3://bucket",
    ] {
        assert_eq!(Settings::parse(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
    }
}

/// The fenced one ends; trouble that passes is tried again; the unknown is not.
#[test]
fn each_kind_of_error_makes_rocksdb_do_the_right_thing() {
    assert_eq!(code(ErrorKind::Fenced), 6);
    assert_eq!((code(ErrorKind::Retry), code(ErrorKind::Busy)), (8, 8));
    assert_eq!((code(ErrorKind::OutcomeUnknown), code(ErrorKind::Closed)), (11, 11));
}

/// A number that RocksDB does not name is the ordinary way.
#[test]
fn hints_of_rocksdb_place_objects_and_order_requests() {
    let asked = |timeout_micros, priority| TomboloAsk { timeout_micros, priority }.get();
    assert_eq!(asked(0, 0), Ask { within: None, priority: Priority::Low });
    assert_eq!(asked(1500, 2), Ask { within: Some(Duration::from_micros(1500)), priority: Priority::High });
    assert_eq!(asked(0, 9).priority, Priority::Normal);
    assert_eq!([0, 1, 2, 7].map(life_of), [Life::Short, Life::Medium, Life::Long, Life::Long]);
}

/// What a process asks of its own files, by their kind.
#[test]
fn statistics_are_told_by_kind_of_file() {
    let uri = b"tombolo://?store=mem://statistics&claim=change";
    let fs = Fs::of(uri).unwrap();
    assert!(statistics(b"tombolo://?store=mem://another").is_err());
    let files = fs.door.mounted().unwrap();
    let told = fs.env.block_on(async {
        let log = files.create(b"/1.log").await?;
        files.append(&log, b"12345").await?;
        files.sync(&log).await?;
        statistics(uri)
    });
    let told = told.unwrap();
    assert!(
        told.contains(
            "\"logs\":{\"files\":1,\"bytes\":5,\"reads\":0,\"read_bytes\":0,\"written_bytes\":5,\"syncs\":1}"
        ),
        "{told}"
    );
    assert!(told.starts_with('{') && told.ends_with('}'));
}

/// RocksDB asks for the time and the size of directories too, and whether two are one.
#[test]
fn directories_have_facts() {
    let fs = Fs::of(b"tombolo://?store=mem://facts&claim=change").unwrap();
    fs.door.create_directory(b"/db/sub").unwrap();
    let files = fs.door.mounted().unwrap();
    fs.env.block_on(files.create(b"/db/CURRENT")).unwrap();
    fs.env.block_on(files.link(b"/db/CURRENT", b"/db/too")).unwrap();
    let [size, seconds, names] = fs.facts(b"/db").unwrap();
    assert!(size == 0 && seconds > 0 && names == 1);
    assert_eq!(fs.facts(b"/db/sub").unwrap(), [0, 0, 1]);
    assert_eq!(fs.facts(b"/db/CURRENT").unwrap()[2], 2);
    assert_eq!(fs.facts(b"/db/none").unwrap_err().kind(), ErrorKind::NotFound);
    for (one, other, same) in [
        ("/db", "/db/", true),
        ("/db", "/db/sub", false),
        ("/db/CURRENT", "/db/too", true),
        ("/db/CURRENT", "/db", false),
    ] {
        assert_eq!(fs.are_same(one.as_bytes(), other.as_bytes()).unwrap(), same, "{one} {other}");
    }
    assert_eq!(fs.are_same(b"/db/none", b"/db/too").unwrap_err().kind(), ErrorKind::NotFound);
}

/// A disk has an end; a store of objects has none that anybody knows.
#[test]
fn free_space_is_that_of_the_disk() {
    let directory = std::env::temp_dir();
    let disk = free_space(&Env::real(), &format!("file://{}/not/there/yet", directory.display())).unwrap();
    assert!(disk > 0 && disk < UNBOUNDED_BYTES);
    assert_eq!(free_space(&Env::real(), "mem://x").unwrap(), UNBOUNDED_BYTES);
}
