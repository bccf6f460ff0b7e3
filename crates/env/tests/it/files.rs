//! Conformance of `FileSystem` and `File`.

use std::io::ErrorKind;
use std::path::Path;

use tombolo_env::file::read_exact_at;
use tombolo_env::simulated::World;
use tombolo_env::{Access, DirectoryEntry, Env, FileSystem};

use crate::worlds::each_world;

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn names(files: &dyn FileSystem, path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        files.list_atomically(path).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

#[test]
fn content_is_what_was_written() {
    each_world(|env, directory| {
        let path = directory.join("a");
        let file = env.files().create_new(&path).unwrap();
        assert_eq!(file.length().unwrap(), 0);
        file.write_all_at(b"hello", 3).unwrap();
        assert_eq!(file.length().unwrap(), 8);
        let mut buffer = [9; 10];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
        assert_eq!(&buffer, b"\0\0\0hello\x09\x09");
        assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
        assert_eq!(kind(read_exact_at(&*file, &mut buffer, 0)), ErrorKind::UnexpectedEof);
        file.set_length(2000).unwrap();
        file.set_length(5).unwrap();
        file.set_length(7).unwrap();
        let mut buffer = [9; 7];
        read_exact_at(&*file, &mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"\0\0\0he\0\0");
        file.sync_data().unwrap();
        file.write_all_at(&[], 100).unwrap();
        assert_eq!(file.length().unwrap(), 7, "writing nothing extends nothing");
        let again = env.files().open(&path, Access::Read).unwrap();
        assert_eq!(again.length().unwrap(), 7);
        assert!(again.write_all_at(b"x", 0).is_err());
        assert!(again.set_length(0).is_err());
        assert!(again.map(7).is_err());
        assert!(file.write_all_at(b"x", u64::MAX).is_err());
    });
}

#[test]
fn names_are_given_once() {
    each_world(|env, directory| {
        let files = env.files();
        let (a, b, missing) = (directory.join("a"), directory.join("b"), directory.join("missing"));
        files.create_new(&a).unwrap().write_all_at(b"a", 0).unwrap();
        assert_eq!(kind(files.create_new(&a)), ErrorKind::AlreadyExists);
        files.hard_link(&a, &b).unwrap();
        assert_eq!(kind(files.hard_link(&a, &b)), ErrorKind::AlreadyExists);
        assert_eq!(kind(files.hard_link(&missing, &directory.join("c"))), ErrorKind::NotFound);
        assert_eq!(kind(files.hard_link(&a, &missing.join("c"))), ErrorKind::NotFound);
        // Both names lead to the same bytes.
        files.open(&b, Access::ReadWrite).unwrap().write_all_at(b"shared", 0).unwrap();
        assert_eq!(files.metadata(&a).unwrap().length, 6);
        files.remove_file(&a).unwrap();
        assert_eq!(kind(files.remove_file(&a)), ErrorKind::NotFound);
        assert_eq!(kind(files.open(&a, Access::Read)), ErrorKind::NotFound);
        assert_eq!(files.metadata(&b).unwrap().length, 6);
        assert_eq!(names(files, directory), ["b"]);
    });
}

#[test]
fn a_rename_replaces() {
    each_world(|env, directory| {
        let files = env.files();
        let (a, b, d) = (directory.join("a"), directory.join("b"), directory.join("d"));
        files.create_new(&a).unwrap().write_all_at(b"new", 0).unwrap();
        let old = files.create_new(&b).unwrap();
        old.write_all_at(b"older", 0).unwrap();
        files.rename(&a, &b).unwrap();
        assert_eq!(names(files, directory), ["b"]);
        assert_eq!(files.metadata(&b).unwrap().length, 3);
        assert_eq!(old.length().unwrap(), 5, "what was replaced stays usable while open");
        files.create_directories(&d).unwrap();
        assert_eq!(kind(files.rename(&b, &d)), ErrorKind::IsADirectory);
        files.rename(&b, &d.join("b")).unwrap();
        assert_eq!(names(files, &d), ["b"]);
        assert_eq!(kind(files.rename(&b, &a)), ErrorKind::NotFound);
        // Two names of one file: nothing changes.
        files.hard_link(&d.join("b"), &a).unwrap();
        files.rename(&a, &d.join("b")).unwrap();
        assert_eq!(names(files, directory), ["a", "d"]);
    });
}

#[test]
fn removed_files_stay_usable() {
    each_world(|env, directory| {
        let path = directory.join("a");
        let file = env.files().create_new(&path).unwrap();
        file.set_length(4096).unwrap();
        let mapping = file.map(4096).unwrap();
        env.files().sync_directory(directory).unwrap();
        env.files().remove_file(&path).unwrap();
        env.files().sync_directory(directory).unwrap();
        file.write_all_at(b"still here", 0).unwrap();
        drop(file);
        let mut buffer = [0; 10];
        mapping.read(0, &mut buffer);
        assert_eq!(&buffer, b"still here");
    });
}

#[test]
fn directories() {
    each_world(|env, directory| {
        let files = env.files();
        let deep = directory.join("x/y/z");
        files.create_directories(&deep).unwrap();
        files.create_directories(&deep).unwrap();
        assert!(files.metadata(&deep).unwrap().is_directory);
        files.create_new(&deep.join("file")).unwrap();
        files.sync_directory(&deep).unwrap();
        assert_eq!(kind(files.create_directories(&deep.join("file"))), ErrorKind::NotADirectory);
        assert_eq!(kind(files.create_directories(&deep.join("file/below"))), ErrorKind::NotADirectory);
        assert_eq!(kind(files.open(&deep, Access::Read)), ErrorKind::IsADirectory);
        assert_eq!(kind(files.remove_file(&deep)), ErrorKind::IsADirectory);
        assert_eq!(kind(files.remove_directory(&deep)), ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(files.remove_directory(&deep.join("file"))), ErrorKind::NotADirectory);
        assert_eq!(kind(files.list_atomically(&deep.join("file"))), ErrorKind::NotADirectory);
        assert_eq!(kind(files.list_atomically(&directory.join("missing"))), ErrorKind::NotFound);
        assert_eq!(kind(files.sync_directory(&directory.join("missing"))), ErrorKind::NotFound);
        assert_eq!(kind(files.metadata(&directory.join("missing"))), ErrorKind::NotFound);
        files.remove_file(&deep.join("file")).unwrap();
        files.remove_directory(&deep).unwrap();
        assert_eq!(kind(files.remove_directory(&deep)), ErrorKind::NotFound);
        assert_eq!(names(files, &directory.join("x")), ["y"]);
    });
}

#[test]
fn lists_are_sorted_and_whole() {
    each_world(|env, directory| {
        let files = env.files();
        for number in (0..300).rev() {
            files.create_new(&directory.join(format!("{number:04}"))).unwrap();
        }
        files.create_directories(&directory.join("sub")).unwrap();
        let mut listed = files.list_atomically(directory).unwrap();
        listed.sort_unstable();
        let mut expected: Vec<_> = (0..300)
            .map(|number| DirectoryEntry { name: format!("{number:04}"), is_directory: false })
            .collect();
        expected.push(DirectoryEntry { name: "sub".into(), is_directory: true });
        assert_eq!(listed, expected);
    });
}

#[test]
fn a_lock_has_one_holder() {
    each_world(|env, directory| {
        let path = directory.join("a");
        let first = env.files().create_new(&path).unwrap();
        let second = env.files().open(&path, Access::Read).unwrap();
        assert!(first.try_lock().unwrap());
        assert!(first.try_lock().unwrap(), "asking again changes nothing");
        assert!(!second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
    });
}

#[test]
fn a_lock_goes_with_its_process() {
    let world = World::new(1);
    let (holder, other) = (world.process("holder"), world.process("other"));
    let held = holder.files().create_new(Path::new("/a")).unwrap();
    assert!(held.try_lock().unwrap());
    let file = other.files().open(Path::new("/a"), Access::Read).unwrap();
    assert!(!file.try_lock().unwrap());
    holder.kill();
    assert!(file.try_lock().unwrap());
    drop(held);
    let third = world.process("third").files().open(Path::new("/a"), Access::Read).unwrap();
    assert!(!third.try_lock().unwrap(), "what a dead process held is not given up twice");
}

#[test]
fn a_name_has_one_winner() {
    // For real only: threads race for the same name; exactly one may get it.
    let directory = tempfile::tempdir().unwrap();
    let env = Env::real();
    for round in 0..50 {
        let target = directory.path().join(format!("target-{round}"));
        let winners: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|racer| {
                    let (env, target) = (env.clone(), target.clone());
                    let own = directory.path().join(format!("own-{round}-{racer}"));
                    scope.spawn(move || {
                        env.files().create_new(&own).unwrap();
                        usize::from(env.files().hard_link(&own, &target).is_ok())
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
    }
}
