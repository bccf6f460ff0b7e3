//! There and back with RocksDB's own library, where it is installed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind, OpenMode, Registry, Result, TablePlace};

use crate::library::{Database, SstWriter};
use crate::{FromRocksdb, Library, Progress, Report, ToRocksdb, from_rocksdb, to_rocksdb};

fn library() -> Option<Arc<Library>> {
    match Library::load(None) {
        Ok(library) => Some(library),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// A database of RocksDB with two families, made of tables.
fn make(library: &Arc<Library>, directory: &Path, entries: u32, value: impl Fn(u32) -> Vec<u8>) {
    let families = ["default".to_owned(), "second".to_owned()];
    let database = Database::create(library, directory, &families).unwrap();
    for (family, step) in [(0, 1), (1, 3)] {
        let path = directory.join("part");
        let mut table = SstWriter::create(library, &path).unwrap();
        for number in (0..entries).step_by(step) {
            table.put(&key(number), &value(number)).unwrap();
        }
        table.finish().unwrap();
        database.ingest(family, &path).unwrap();
    }
}

struct Over {
    rocksdb: Arc<Library>,
    _place: tempfile::TempDir,
    from: std::path::PathBuf,
    back: std::path::PathBuf,
    uri: String,
    tables: std::path::PathBuf,
    env: Env,
}

impl Over {
    fn new() -> Option<Over> {
        let rocksdb = library()?;
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let (from, back, tables) = (path("from"), path("back"), path("tables"));
        let uri = format!("file://{}", path("to").display());
        std::fs::create_dir(&tables).unwrap();
        Some(Over { rocksdb, from, back, uri, tables, env: Env::real(), _place: place })
    }

    fn open(&self) -> Db {
        Db::builder(self.uri.clone())
            .env(self.env.clone())
            .mode(OpenMode::CreateOrOpen)
            .open()
            .wait()
            .unwrap()
    }

    fn over(
        &self,
        change: impl FnOnce(&mut FromRocksdb<'_>),
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Report> {
        let db = self.open();
        let over = self.over_to(&db, change, tell);
        db.close().wait().unwrap();
        over
    }

    fn over_to(
        &self,
        db: &Db,
        change: impl FnOnce(&mut FromRocksdb<'_>),
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Report> {
        let place = |number: u64| Ok(TablePlace::from(self.tables.join(number.to_string()).as_path()));
        let mut asked = FromRocksdb {
            rocksdb: Arc::clone(&self.rocksdb),
            directory: self.from.clone(),
            merge_operator: None,
            ttl: None,
            nothing_prepared: false,
            table_bytes: 20_000,
            bytes_per_second: None,
            compare: true,
            env: self.env.clone(),
            registry: Registry::with_defaults(),
            place: &place,
        };
        change(&mut asked);
        from_rocksdb(db, &asked, tell)
    }

    fn back(&self, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Report> {
        let asked = ToRocksdb {
            rocksdb: Arc::clone(&self.rocksdb),
            directory: self.back.clone(),
            table_bytes: 20_000,
            forget_ends: false,
            compare: true,
        };
        let db = self.open();
        let back = to_rocksdb(&db, &asked, tell);
        db.close().wait().unwrap();
        back
    }
}

/// All families there and back, each run stopped once and gone on with; the digests of all three
/// are one.
#[test]
fn a_database_comes_over_and_back_whole() {
    let Some(over) = Over::new() else { return };
    make(&over.rocksdb, &over.from, 9000, |number| vec![u8::try_from(number % 251).unwrap(); 30]);
    let mut tables_seen = 0;
    let stopped = over.over(|_| {}, &mut |progress: &Progress| {
        tables_seen = progress.tables;
        progress.tables < 3
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(tables_seen, 3);
    let report = over.over(|_| {}, &mut |_| true).unwrap();
    assert!(report.progress.entries < 12_000 && report.progress.entries > 6000, "{report:?}");
    let entries: Vec<u64> = report.digests.iter().map(|(_, _, to)| to.entries).collect();
    assert_eq!(entries, [9000, 3000]);
    assert!(report.digests.iter().all(|(_, from, to)| from == to));
    let again = over.over(|_| {}, &mut |_| true).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid, "{again}");
    let stopped = over.back(&mut |progress: &Progress| progress.tables < 3);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Closed);
    let back = over.back(&mut |_| true).unwrap();
    assert_eq!(back.digests, report.digests);
    assert_eq!(over.back(&mut |_| true).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Values of the TTL wrapper lose the time behind them, and end when they would have; those whose
/// time is over stay behind.
#[test]
fn values_of_the_ttl_wrapper_end_when_they_would_have() {
    let Some(over) = Over::new() else { return };
    let now = u32::try_from(over.env.unix_time().as_secs()).unwrap();
    make(&over.rocksdb, &over.from, 300, |number| {
        let written = if number % 2 == 0 { now } else { now - 20_000 };
        [&b"value"[..], &written.to_le_bytes()].concat()
    });
    let ttl = Duration::from_secs(10_000);
    let report = over.over(|asked| asked.ttl = Some(ttl), &mut |_| true).unwrap();
    assert_eq!(report.progress.expired, 150 + 50);
    let db = over.open();
    let mut cursor = db.default_keyspace().cursor::<&[u8]>(..);
    assert!(cursor.next().unwrap());
    assert_eq!((cursor.key(), cursor.value()), (&key(0)[..], &b"value"[..]));
    assert_eq!(cursor.expires_ms(), Some((u64::from(now) + 10_000) * 1000));
    drop(cursor);
    db.close().wait().unwrap();
    drop(db);
    assert_eq!(over.back(&mut |_| true).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// What differs in the end is found, wherever it is: another value, an entry too few or too many,
/// another end.
#[test]
fn what_differs_is_found() {
    let change = |ttl: Option<Duration>, change: &dyn Fn(&Db)| {
        let over = Over::new()?;
        let now = u32::try_from(over.env.unix_time().as_secs()).unwrap();
        make(&over.rocksdb, &over.from, 3000, |_| [&b"value"[..], &now.to_le_bytes()].concat());
        let changed = std::cell::Cell::new(false);
        let db = over.open();
        let ended = over.over_to(
            &db,
            |asked| asked.ttl = ttl,
            // Its place in the keyspace is behind it.
            &mut |progress| {
                if progress.tables > 0 && !changed.replace(true) {
                    change(&db);
                }
                true
            },
        );
        db.close().wait().unwrap();
        Some(ended.unwrap_err())
    };
    let long = Some(Duration::from_secs(10_000));
    type Change<'a> = &'a dyn Fn(&Db);
    let changes: [(&str, Change<'_>); 4] = [
        ("put", &|db| db.default_keyspace().put(key(7), "other").wait().unwrap()),
        ("delete", &|db| db.default_keyspace().delete(key(7)).wait().unwrap()),
        ("more", &|db| db.default_keyspace().put("key 000007 and more", "other").wait().unwrap()),
        ("behind", &|db| db.default_keyspace().put("zzz", "other").wait().unwrap()),
    ];
    let all = changes.iter().map(|of| (None, of));
    let lost = [long, Some(Duration::ZERO)].map(|ttl| (ttl, &changes[1]));
    for (ttl, (what, of)) in all.chain(lost) {
        let Some(error) = change(ttl, of) else { return };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        assert!(error.to_string().contains("differ"), "{what}: {error}");
    }
    let forever = |db: &Db| db.default_keyspace().put(key(7), "value").wait().unwrap();
    let Some(error) = change(long, &forever) else { return };
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("an end at"), "{error}");
}

/// So does the way back.
#[test]
fn what_differs_is_found_on_the_way_back() {
    for (name, value) in [(key(7), "other"), (b"key 000007 and more".to_vec(), "value")] {
        let Some(over) = Over::new() else { return };
        make(&over.rocksdb, &over.from, 3000, |_| b"value".to_vec());
        over.over(|_| {}, &mut |_| true).unwrap();
        let stopped = over.back(&mut |progress: &Progress| progress.tables < 1);
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Closed);
        let families = ["default".to_owned(), "second".to_owned()];
        let target = Database::create(&over.rocksdb, &over.back, &families).unwrap();
        let path = over.back.join("part");
        let mut table = SstWriter::create(&over.rocksdb, &path).unwrap();
        table.put(&name, value.as_bytes()).unwrap();
        table.finish().unwrap();
        target.ingest(0, &path).unwrap();
        drop(target);
        let error = over.back(&mut |_| true).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("differ"), "{error}");
    }
}

/// A place with other data is never written to, and a missing part is named.
#[test]
fn wrong_places_are_refused() {
    let Some(over) = Over::new() else { return };
    let missing = over.over(|_| {}, &mut |_| true).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    make(&over.rocksdb, &over.from, 10, |_| b"value".to_vec());
    let wrong = over.over(|asked| asked.merge_operator = Some("no such".into()), &mut |_| true);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Invalid);
    let db = over.open();
    db.default_keyspace().put("other", "data").wait().unwrap();
    db.close().wait().unwrap();
    drop(db);
    let taken = over.over(|_| {}, &mut |_| true).unwrap_err();
    assert!(taken.kind() == ErrorKind::Invalid && taken.to_string().contains("not empty"), "{taken}");
    std::fs::create_dir_all(&over.back).unwrap();
    std::fs::write(over.back.join("file"), "x").unwrap();
    assert_eq!(over.back(&mut |_| true).unwrap_err().kind(), ErrorKind::Invalid);
    let none = Library::load(Some(Path::new("/no/such/librocksdb.so"))).unwrap_err();
    assert!(none.to_string().contains("librocksdb-dev"), "{none}");
}
