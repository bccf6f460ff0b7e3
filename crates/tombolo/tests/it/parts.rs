//! Ranges of keys of several checkpoints become one database, and the reverse.

use std::collections::BTreeMap;

use tombolo::{
    Builder, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, OperatorName, Options, RestorePart,
};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn builder(&self, name: &str) -> Builder {
        let mut options = Options::parse(["memory_bytes=8388608", "memtable_bytes=1048576"]).unwrap();
        options.automatic_compaction = false;
        let uri = format!("file://{}/{name}", self.0.path().display());
        Db::builder(uri).env(Env::real()).options(options)
    }

    fn part(&self, name: &str) -> RestorePart {
        RestorePart::of(self.builder(name).at_checkpoint("c"))
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn weights(db: &Db) -> Keyspace {
    let operator = Some(OperatorName::parse("add_i64").unwrap());
    db.open_or_create_keyspace("sums", KeyspaceOptions { operator, ..KeyspaceOptions::default() })
        .wait()
        .unwrap()
}

fn apart(db: &Db) -> Keyspace {
    let options = KeyspaceOptions { separate_bytes: 512, ..KeyspaceOptions::default() };
    db.open_or_create_keyspace("apart", options).wait().unwrap()
}

/// A worker's state: keys from `from` on and before `to`, in several tables with all that may be
/// in them.
fn fill(db: &Db, from: u32, to: u32, seed: u32) {
    let (plain, sums, apart) = (db.default_keyspace(), weights(db), apart(db));
    for round in 0..4 {
        for number in (from..to).filter(|number| !(number * 7 + round).is_multiple_of(3)) {
            let value = format!("{seed}/{round}/{number}");
            plain.put_with(key(number), value, Durability::Accepted).wait().unwrap();
            let more = i64::from(number + round).to_le_bytes();
            sums.merge_with(key(number), more, Durability::Accepted).wait().unwrap();
            if number.is_multiple_of(16) {
                let value = vec![u8::try_from(round).unwrap(); 600];
                apart.put_with(key(number), value, Durability::Accepted).wait().unwrap();
            }
        }
        // Over a bound of the parts, and one that ends with all keys.
        let middle = from + (to - from) / 2;
        if round == 1 {
            plain.delete_range(key(middle - 20), key(middle + 20)).wait().unwrap();
        }
        if round == 3 {
            (from..to).step_by(11).for_each(|number| plain.delete(key(number)).wait().unwrap());
        }
        db.flush().wait().unwrap();
        if round == 2 {
            db.compact().wait().unwrap();
        }
    }
}

fn contents(db: &Db) -> BTreeMap<String, Contents> {
    let of = |keyspace: Keyspace| {
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        let mut found = Contents::new();
        while cursor.next().unwrap() {
            let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
            assert_eq!(keyspace.get(&key).wait().unwrap().as_deref(), Some(&value[..]), "get and scan agree");
            found.insert(key, value);
        }
        assert_eq!(keyspace.count::<&[u8]>(..).wait().unwrap(), found.len() as u64);
        found
    };
    db.keyspaces().into_iter().map(|keyspace| (keyspace.name().to_owned(), of(keyspace))).collect()
}

fn within(all: &BTreeMap<String, Contents>, from: u32, to: u32) -> BTreeMap<String, Contents> {
    let (from, to) = (key(from), key(to));
    let cut = |contents: &Contents| {
        contents
            .iter()
            .filter(|(key, _)| **key >= from && **key < to)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    all.iter().map(|(name, contents)| (name.clone(), cut(contents))).collect()
}

fn joined(one: BTreeMap<String, Contents>, other: BTreeMap<String, Contents>) -> BTreeMap<String, Contents> {
    other.into_iter().fold(one, |mut all, (name, contents)| {
        all.entry(name).or_default().extend(contents);
        all
    })
}

/// Two workers, at a checkpoint.
fn workers(place: &Place) -> [BTreeMap<String, Contents>; 2] {
    [("first", 0, 600), ("second", 600, 1200)].map(|(name, from, to)| {
        let db = place.builder(name).open().wait().unwrap();
        fill(&db, from, to, from);
        db.checkpoint("c").wait().unwrap();
        let found = contents(&db);
        // What comes later is not in it.
        db.default_keyspace().put(key(from + 1), "later").wait().unwrap();
        db.close().wait().unwrap();
        found
    })
}

fn check(builder: impl Fn() -> Builder, wanted: &BTreeMap<String, Contents>) {
    let db = builder().open().wait().unwrap();
    assert_eq!(contents(&db), *wanted);
    assert!(db.verify().wait().unwrap().damage.is_empty());
    db.compact().wait().unwrap();
    assert_eq!(contents(&db), *wanted, "after a compaction");
    // A write now is newer than all that came.
    for name in wanted.keys().filter(|name| *name != "sums") {
        let keyspace = db.keyspace(name).unwrap();
        if let Some((key, _)) = wanted[name].iter().next() {
            keyspace.put(key, "newer").wait().unwrap();
            assert_eq!(keyspace.get(key).wait().unwrap().as_deref(), Some(&b"newer"[..]));
        }
    }
    let now = contents(&db);
    db.close().wait().unwrap();
    let db = builder().open().wait().unwrap();
    assert_eq!(contents(&db), now, "opened again");
    db.close().wait().unwrap();
}

fn state_moves_to_other_numbers_of_workers() {
    let place = Place::new();
    let [first, second] = workers(&place);
    let whole = joined(first, second);
    // Two become one.
    let parts = [place.part("first"), place.part("second")];
    place.builder("one").restore_parts(parts).wait().unwrap();
    check(|| place.builder("one"), &whole);
    // Two become three, whose bounds cut tables.
    let three = [
        ("a", 0, 290, vec![place.part("first").before(key(290))]),
        ("b", 290, 905, vec![place.part("first").from(key(290)), place.part("second").before(key(905))]),
        ("c", 905, 1200, vec![place.part("second").from(key(905))]),
    ];
    for (name, from, to, parts) in three {
        place.builder(name).restore_parts(parts).wait().unwrap();
        check(|| place.builder(name), &within(&whole, from, to));
    }
}

#[test]
fn ranges_of_checkpoints_become_databases() {
    state_moves_to_other_numbers_of_workers();
}

#[cfg(feature = "mutants")]
#[test]
fn a_part_that_reaches_beyond_its_range_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::PartReachesBeyond, state_moves_to_other_numbers_of_workers);
}

/// Each part of a table that was cut refers to its own values, and to no others.
#[test]
fn parts_of_a_table_refer_to_their_own_values() {
    let place = Place::new();
    let bytes_apart = |db: &Db| apart(db).approximate_size::<&[u8]>(..).wait().unwrap().value_bytes;
    let db = place.builder("whole").open().wait().unwrap();
    (0..200).for_each(|number| apart(&db).put(key(number), [7; 600]).wait().unwrap());
    db.checkpoint("c").wait().unwrap();
    let whole = bytes_apart(&db);
    db.close().wait().unwrap();
    let parts = [place.part("whole").before(key(50)), place.part("whole").from(key(50))];
    let found = ["a", "b"].into_iter().zip(parts).map(|(name, part)| {
        place.builder(name).restore_parts([part]).wait().unwrap();
        let db = place.builder(name).open().wait().unwrap();
        let found = bytes_apart(&db);
        db.close().wait().unwrap();
        found
    });
    let found: Vec<u64> = found.collect();
    assert!(
        found[0] < whole / 3 && (whole * 9 / 10..whole * 11 / 10).contains(&(found[0] + found[1])),
        "{found:?}"
    );
}

#[test]
fn tables_within_a_range_are_linked() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    workers(&place);
    let parts = [place.part("first"), place.part("second")];
    place.builder("one").restore_parts(parts).wait().unwrap();
    let mut folders = vec![place.0.path().join("one")];
    let mut links = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains("/table/") {
                links.push(std::fs::metadata(&path).unwrap().nlink());
            }
        }
    }
    assert!(links.len() >= 6 && links.iter().all(|links| *links == 2), "{links:?}");
}

#[test]
fn what_cannot_be_restored_is_refused_and_the_target_stays_empty() {
    let place = Place::new();
    workers(&place);
    let kind =
        |parts: Vec<RestorePart>| place.builder("target").restore_parts(parts).wait().unwrap_err().kind();
    assert_eq!(kind(vec![]), ErrorKind::Invalid);
    assert_eq!(
        kind(vec![RestorePart::of(place.builder("first"))]),
        ErrorKind::Invalid,
        "no checkpoint is named"
    );
    let gone = RestorePart::of(place.builder("first").at_checkpoint("gone"));
    assert_eq!(kind(vec![gone]), ErrorKind::NotFound);
    assert_eq!(kind(vec![place.part("first").keyspace("nothing")]), ErrorKind::NotFound);
    assert_eq!(kind(vec![place.part("first").from("b").before("a")]), ErrorKind::Invalid);
    let meeting = || vec![place.part("first").before(key(300)), place.part("first").from(key(200))];
    assert_eq!(kind(meeting()), ErrorKind::Invalid, "parts that meet");
    // Other settings than the first source has.
    let db = place.builder("second").open().wait().unwrap();
    db.keyspace("apart").unwrap().set_options([("filter_bits", "4")]).wait().unwrap();
    db.flush().wait().unwrap();
    db.delete_checkpoint("c").wait().unwrap();
    db.checkpoint("c").wait().unwrap();
    db.close().wait().unwrap();
    let both = || vec![place.part("first"), place.part("second")];
    assert_eq!(kind(both()), ErrorKind::Invalid, "settings differ");
    // Of the others they are one.
    let sums = || both().into_iter().map(|part| part.keyspace("sums"));
    place.builder("target").restore_parts(sums()).wait().unwrap();
    assert_eq!(kind(sums().collect()), ErrorKind::AlreadyExists);
    let db = place.builder("target").open().wait().unwrap();
    assert_eq!(db.keyspaces().len(), 2);
    assert!(db.keyspace("sums").unwrap().count::<&[u8]>(..).wait().unwrap() > 1000);
    db.close().wait().unwrap();
}
