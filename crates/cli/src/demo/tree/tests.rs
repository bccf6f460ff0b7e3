use std::os::unix::fs::symlink;

use super::*;

#[test]
fn records_are_read_as_they_were_written() {
    let record = Record {
        writer: 1,
        mode: 0o100_644,
        sequence: 3,
        size: 4,
        modified_nanos: -5,
        changed_nanos: 6,
        checksum: u64::MAX,
    };
    assert_eq!(record.encode().len(), RECORD_BYTES);
    assert_eq!(Record::decode(&record.encode()), Some(record));
    assert_eq!(Record::decode(&[0; RECORD_BYTES - 1]), None);
}

#[test]
fn a_walk_finds_regular_files_only_and_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("b/c")).unwrap();
    for name in ["a", "b/c/d", "z"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    symlink("a", folder.path().join("link")).unwrap();
    let mut found = Vec::new();
    let ended = walk(folder.path(), &mut |path| {
        found.push(path.strip_prefix(folder.path()).unwrap().to_path_buf());
        true
    });
    assert_eq!(ended, (true, 0));
    assert_eq!(found, ["a", "z", "b/c/d"].map(PathBuf::from));
    assert_eq!(walk(&folder.path().join("none"), &mut |_| true), (true, 1));
    assert_eq!(walk(folder.path(), &mut |_| false), (false, 0));
}

#[test]
fn content_is_read_once_and_again_when_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "one").unwrap();
    let mut buffer = vec![0; 2];
    let first = look(&path, None, &mut buffer, &|| true).unwrap();
    assert_eq!((first.size, first.checksum), (3, xxhash_rust::xxh3::xxh3_64(b"one")));
    let marked = Record { checksum: 42, ..first };
    assert_eq!(look(&path, Some(marked), &mut buffer, &|| true).unwrap().checksum, 42);
    fs::write(&path, "four").unwrap();
    assert_eq!(
        look(&path, Some(marked), &mut buffer, &|| true).unwrap().checksum,
        xxhash_rust::xxh3::xxh3_64(b"four")
    );
    assert!(look(&path, None, &mut buffer, &|| false).is_err());
}
