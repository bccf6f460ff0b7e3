//! Conformance of `Mapping`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use tombolo_env::{Access, Env};

use crate::worlds::each_world;

#[test]
fn a_mapping_and_its_file_show_the_same_bytes() {
    each_world(|env, directory| {
        let path = directory.join("a");
        let file = env.files().create_new(&path).unwrap();
        assert!(file.map(1).is_err(), "the file is shorter");
        file.set_length(10_000).unwrap();
        assert!(file.map(0).is_err() && file.map(10_001).is_err());
        let mapping = file.map(10_000).unwrap();
        assert_eq!(mapping.length(), 10_000);
        mapping.populate(0, 10_000).unwrap();
        mapping.populate(5000, 0).unwrap();
        mapping.populate(4097, 1).unwrap();
        mapping.write(4093, b"across a page");
        let mut buffer = [0; 13];
        file.read_at(&mut buffer, 4093).unwrap();
        assert_eq!(&buffer, b"across a page");
        file.write_all_at(b"from the file", 9987).unwrap();
        mapping.read(9987, &mut buffer);
        assert_eq!(&buffer, b"from the file");
        file.sync_data().unwrap();
        let second = env.files().open(&path, Access::ReadWrite).unwrap().map(8192).unwrap();
        drop(file);
        second.store_u64(16, 0x0102_0304_0506_0708);
        assert_eq!(mapping.load_u64(16), 0x0102_0304_0506_0708);
        let mut word = [0; 8];
        mapping.read(16, &mut word);
        assert_eq!(word, [8, 7, 6, 5, 4, 3, 2, 1], "words are little-endian");
    });
}

#[test]
fn populating_changes_nothing() {
    each_world(|env, directory| {
        let file = env.files().create_new(&directory.join("a")).unwrap();
        let content: Vec<u8> = (0..20_000u32).map(|index| index.to_le_bytes()[0]).collect();
        file.write_all_at(&content, 0).unwrap();
        let mapping = file.map(content.len()).unwrap();
        mapping.populate(100, 15_000).unwrap();
        let mut read = vec![0; content.len()];
        mapping.read(0, &mut read);
        assert_eq!(read, content);
    });
}

#[test]
fn what_was_let_go_is_there_and_can_be_stored_to_and_read() {
    each_world(|env, directory| {
        let file = env.files().create_new(&directory.join("a")).unwrap();
        file.set_length(50_000).unwrap();
        let mapping = file.map(50_000).unwrap();
        let content: Vec<u8> = (0..50_000u32).map(|index| index.to_le_bytes()[0] | 1).collect();
        mapping.write(0, &content);
        for (offset, length) in [(0, 50_000), (100, 20_000), (4096, 4096), (4097, 4095), (49_999, 1), (7, 0)]
        {
            mapping.let_go(offset, length);
            let mut read = vec![0; content.len()];
            file.read_at(&mut read, 0).unwrap();
            assert_eq!(read, content, "in the file, after {length} bytes at {offset}");
            read.fill(0);
            mapping.read(0, &mut read);
            assert_eq!(read, content, "in the mapping, after {length} bytes at {offset}");
        }
        mapping.let_go(0, 50_000);
        mapping.write(30_000, b"stored again");
        file.sync_data().unwrap();
        let mut read = [0; 12];
        file.read_at(&mut read, 30_000).unwrap();
        assert_eq!(&read, b"stored again");
        let beyond = AssertUnwindSafe(|| mapping.let_go(49_999, 2));
        assert!(catch_unwind(beyond).is_err(), "a range beyond the mapping");
    });
}

#[test]
fn words_only_rise() {
    each_world(|env, directory| {
        let file = env.files().create_new(&directory.join("a")).unwrap();
        file.set_length(64).unwrap();
        let mapping = file.map(64).unwrap();
        assert_eq!(mapping.fetch_max_u64(8, 5), 0);
        assert_eq!(mapping.fetch_max_u64(8, 3), 5);
        assert_eq!(mapping.fetch_max_u64(8, u64::MAX), 5);
        assert_eq!(mapping.load_u64(8), u64::MAX);
        mapping.full_fence();
        assert_eq!((mapping.load_u64(0), mapping.load_u64(16)), (0, 0));
    });
}

#[test]
fn ranges_outside_panic() {
    each_world(|env, directory| {
        let file = env.files().create_new(&directory.join("a")).unwrap();
        file.set_length(64).unwrap();
        let mapping = file.map(64).unwrap();
        let panics = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
        assert!(panics(&|| mapping.write(60, &[0; 5])));
        assert!(panics(&|| mapping.write(usize::MAX, &[0; 5])));
        assert!(panics(&|| mapping.read(65, &mut [])));
        assert!(panics(&|| mapping.read(0, &mut [0; 65])));
        assert!(panics(&|| _ = mapping.load_u64(4)));
        assert!(panics(&|| _ = mapping.load_u64(64)));
        assert!(panics(&|| mapping.store_u64(60, 0)));
        assert!(panics(&|| _ = mapping.fetch_max_u64(1, 0)));
        assert!(panics(&|| mapping.populate(0, 65).unwrap()));
        assert!(!panics(&|| mapping.read(64, &mut [])));
        assert!(!panics(&|| mapping.write(59, &[0; 5])));
    });
}

#[test]
fn threads_raise_one_word() {
    // For real only: the word ends at the greatest value, and each thread sees it rise.
    let directory = tempfile::tempdir().unwrap();
    let file = Env::real().files().create_new(&directory.path().join("a")).unwrap();
    file.set_length(4096).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let mapping = file.map(4096).unwrap();
            scope.spawn(move || {
                let mut last = 0;
                for round in 0..5000 {
                    let before = mapping.fetch_max_u64(0, round * 4 + thread);
                    assert!(before >= last);
                    last = before.max(round * 4 + thread);
                }
            });
        }
    });
    assert_eq!(file.map(8).unwrap().load_u64(0), 4999 * 4 + 3);
}

proptest! {
    /// Reads and writes of any alignment agree with a plain buffer.
    #[test]
    fn agrees_with_a_buffer(
        writes in prop::collection::vec((0usize..600, prop::collection::vec(any::<u8>(), 0..40)), 1..20)
    ) {
        each_world(|env, directory| {
            let path = directory.join("a");
            let _ = env.files().remove_file(&path);
            let file = env.files().create_new(&path).unwrap();
            file.set_length(640).unwrap();
            let mapping = file.map(640).unwrap();
            let mut model = vec![0; 640];
            for (offset, bytes) in &writes {
                mapping.write(*offset, bytes);
                model[*offset..offset + bytes.len()].copy_from_slice(bytes);
                let mut seen = vec![0; bytes.len() + 1];
                mapping.read(*offset, &mut seen);
                assert_eq!(seen, &model[*offset..=offset + bytes.len()]);
            }
            let mut seen = vec![0; 640];
            mapping.full_fence();
            file.read_at(&mut seen, 0).unwrap();
            assert_eq!(seen, model);
        });
    }
}
