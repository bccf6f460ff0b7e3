//! A database that an earlier build wrote opens, and says the same.
//!
//! `tests/golden/NAME.zst` has the files of a database, and `NAME.txt` beside it all that they say.
//! A build that reads them otherwise, or not at all, has changed a format. Before version 0.1 that
//! is allowed, if it is meant: `UPDATE_GOLDEN=1` writes both again, and CHANGELOG says so. From 0.1
//! on each version adds files, and none is changed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tombolo::{Builder, Db, KeyspaceOptions, OpenMode, Options, TakeOver};

/// The newest one.
const NAME: &str = "0.1";
/// In the year 2200.
const FAR_MS: u64 = 7_258_118_400_000;

fn golden(extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{NAME}.{extension}"))
}

fn builder(folder: &Path) -> Builder {
    let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
    let uri = format!("file://{}", folder.display());
    Db::builder(&uri).log(format!("{uri}?form=written")).options(options).take_over(TakeOver::Always)
}

/// Something of all that a database may hold, in tables, in objects of values and in the log.
fn make(folder: &Path) {
    let db = builder(folder).open().wait().unwrap();
    let made = |name: &str, settings: &[(&str, &str)]| {
        let mut options = KeyspaceOptions::default();
        settings.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        db.create_keyspace(name, options).wait().unwrap()
    };
    let keys = db.default_keyspace();
    let counts = made("counts", &[("operator", "add_u64")]);
    let large = made("large", &[("separate_bytes", "512"), ("compression", "none")]);
    let packed = made("packed", &[("compression", "zstd"), ("block_bytes", "2048"), ("filter_bits", "0")]);
    let tiers = made("tiers", &[("shape", "tiered")]);
    let gone = made("gone", &[]);
    gone.put("a", "1").wait().unwrap();
    for round in 0..3u64 {
        for number in 0..200 {
            let key = format!("key {number:04}");
            keys.put(&key, format!("{number} of round {round}")).wait().unwrap();
            counts.merge(&key, (number + round).to_le_bytes()).wait().unwrap();
            if number % 20 == 0 {
                packed.put(&key, key.repeat(20)).wait().unwrap();
                large.put(&key, vec![number as u8; 2000]).wait().unwrap();
                tiers.put_until_with(&key, "far", FAR_MS, tombolo::Durability::Durable).wait().unwrap();
            }
        }
        keys.put(format!("once {round}"), "1").wait().unwrap();
        db.flush().wait().unwrap();
        if round == 0 {
            db.checkpoint("then").wait().unwrap();
            db.compact().wait().unwrap();
        }
        keys.single_delete(format!("once {round}")).wait().unwrap();
        keys.delete(format!("key {round:04}")).wait().unwrap();
        keys.delete_range(format!("key 00{}0", round + 2), format!("key 00{}5", round + 2)).wait().unwrap();
    }
    db.drop_keyspace("gone").wait().unwrap();
    db.flush().wait().unwrap();
    let prepared = db.transaction();
    prepared.put(&keys, "prepared", "1").wait().unwrap();
    let prepared = prepared.prepare("in doubt").wait().unwrap();
    // What follows is in the log alone.
    keys.put("key 0100", "in the log").wait().unwrap();
    keys.delete("key 0101").wait().unwrap();
    keys.delete_range("key 0102", "key 0104").wait().unwrap();
    counts.merge("key 0105", 1_000_000u64.to_le_bytes()).wait().unwrap();
    large.put("key 0106", vec![7; 3000]).wait().unwrap();
    drop(prepared);
}

/// All that it says, a line each.
fn said(db: &Db) -> String {
    let mut said = String::new();
    let mut keyspaces = db.keyspaces();
    keyspaces.sort_by(|first, second| first.name().cmp(second.name()));
    for keyspace in keyspaces {
        let plain = KeyspaceOptions::default().settings();
        for setting in keyspace.options().settings().into_iter().filter(|setting| !plain.contains(setting)) {
            writeln!(said, "{} {}={}", keyspace.name(), setting.0, setting.1).unwrap();
        }
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        while cursor.next().unwrap() {
            let value = cursor.value();
            let shown = if value.len() > 40 {
                format!("{} bytes of {:?}", value.len(), value[0])
            } else {
                value.escape_ascii().to_string()
            };
            let ends = cursor.expires_ms().map_or(String::new(), |ends| format!(" until {ends}"));
            writeln!(said, "{} {} = {shown}{ends}", keyspace.name(), cursor.key().escape_ascii()).unwrap();
        }
    }
    said
}

fn pack(folder: &Path) -> Vec<u8> {
    fn add(root: &Path, folder: &Path, packed: &mut Vec<u8>) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                add(root, &path, packed);
            } else if path.is_file() {
                let (name, bytes) = (path.strip_prefix(root).unwrap(), fs::read(&path).unwrap());
                for part in [name.to_str().unwrap().as_bytes(), &bytes] {
                    packed.extend((part.len() as u64).to_le_bytes());
                    packed.extend(part);
                }
            }
        }
    }
    let mut packed = Vec::new();
    add(folder, folder, &mut packed);
    zstd::bulk::compress(&packed, 19).unwrap()
}

fn unpack(packed: &[u8], folder: &Path) {
    let bytes = zstd::stream::decode_all(packed).unwrap();
    let mut rest = &bytes[..];
    let mut part = || {
        let (length, after) = rest.split_first_chunk::<8>()?;
        let (part, after) = after.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
        rest = after;
        Some(part.to_vec())
    };
    while let (Some(name), Some(bytes)) = (part(), part()) {
        let path = folder.join(String::from_utf8(name).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_database_of_an_earlier_build_says_what_it_said() {
    let folder = tempfile::tempdir().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        make(&folder.path().join("made"));
        // Its tasks end behind it.
        std::thread::sleep(Duration::from_secs(1));
        fs::write(golden("zst"), pack(&folder.path().join("made"))).unwrap();
    }
    let place = folder.path().join("db");
    unpack(&fs::read(golden("zst")).unwrap(), &place);
    // A look first: it changes nothing.
    let look = builder(&place).open_read_only().wait().unwrap();
    let first = said(&look);
    drop(look);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden("txt"), &first).unwrap();
    }
    let wanted = fs::read_to_string(golden("txt")).unwrap();
    assert!(first == wanted, "a look finds {first}");

    let db = builder(&place).mode(OpenMode::Open).open().wait().unwrap();
    assert!(said(&db) == wanted, "the writer finds {}", said(&db));
    assert!(db.verify().wait().unwrap().damage.is_empty());
    let in_doubt = db.in_doubt().wait().unwrap();
    assert_eq!(in_doubt.iter().map(|one| &one.id[..]).collect::<Vec<_>>(), [b"in doubt"]);
    assert!(db.checkpoints().wait().unwrap().iter().any(|checkpoint| checkpoint.name == "then"));
    let then = builder(&place).at_checkpoint("then").open_read_only().wait().unwrap();
    let value = then.default_keyspace().get("key 0000").wait().unwrap().unwrap();
    assert_eq!(&value[..], b"0 of round 0");

    // This build goes on with it, and writes all of it again.
    db.default_keyspace().put("later", "1").wait().unwrap();
    db.compact().wait().unwrap();
    db.close().wait().unwrap();
    let db = builder(&place).mode(OpenMode::Open).open().wait().unwrap();
    let more = said(&db);
    assert_eq!(more.replace("default later = 1\n", ""), wanted);
    assert_ne!(more, wanted);
    assert!(db.verify().wait().unwrap().damage.is_empty());
}
