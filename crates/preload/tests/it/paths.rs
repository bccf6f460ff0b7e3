//! What a program finds behind paths: of files that it makes on several threads, of directories,
//! through links. Each test that needs it runs itself under the library.

use std::fs;
use std::process::{Command, Output};

use crate::setup::{self, Setup, content, installed, is_program, library, printed};
use crate::streams;

/// See [`setup::as_program`].
fn as_program(test: &str, setup: &Setup) -> Option<Output> {
    setup::as_program(&format!("paths::{test}"), setup)
}

/// Writes the file `sub/a`, and takes the directory away: as on another machine.
fn write_and_lose(setup: &Setup) {
    let sub = setup.files().join("sub");
    fs::create_dir(&sub).unwrap();
    printed(&setup.command("/bin/sh").args(["-c", "echo text > sub/a"]).output().unwrap());
    fs::remove_dir_all(&sub).unwrap();
}

#[test]
fn threads_that_make_the_same_file_open_it_all() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("threads_that_make_the_same_file_open_it_all", &setup).is_some() {
        assert_eq!(content(&setup, "7.ours").len(), 4);
        return;
    }
    for number in 0..400 {
        let (name, barrier) = (format!("{number}.ours"), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let mut file = fs::OpenOptions::new().append(true).create(true).open(&name).unwrap();
                    std::io::Write::write_all(&mut file, b"x").unwrap();
                });
            }
        });
    }
}

#[test]
fn no_directory_is_renamed_to_one_that_only_the_database_knows() {
    let setup = Setup::new(&["sub/*"]);
    if !is_program() {
        write_and_lose(&setup);
    }
    if as_program("no_directory_is_renamed_to_one_that_only_the_database_knows", &setup).is_some() {
        assert_eq!(content(&setup, "sub/a"), "text\n");
        return;
    }
    fs::create_dir("other").unwrap();
    assert_eq!(fs::rename("other", "sub").unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
}

#[test]
fn a_directory_is_listed_and_entered_through_a_link() {
    let setup = Setup::new(&["sub/*"]);
    let run = |words: &[&str]| printed(&setup.command(words[0]).args(&words[1..]).output().unwrap());
    if !is_program() {
        write_and_lose(&setup);
        std::os::unix::fs::symlink("sub", setup.files().join("current")).unwrap();
        fs::create_dir(setup.files().join("sub")).unwrap();
        assert_eq!(run(&["/bin/ls", "current/"]), "a\n");
        fs::remove_dir_all(setup.files().join("sub")).unwrap();
        assert_eq!(run(&["/bin/sh", "-c", "cd current/ && echo *"]), "a\n");
        fs::remove_dir_all(setup.files().join("sub")).unwrap();
    }
    if as_program("a_directory_is_listed_and_entered_through_a_link", &setup).is_none() {
        assert_eq!(fs::read_dir("current/").unwrap().count(), 1);
    }
}

#[test]
fn whichever_way_a_path_is_resolved_the_database_is_asked() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("whichever_way_a_path_is_resolved_the_database_is_asked", &setup).is_some() {
        return;
    }
    fs::write("a.ours", "text").unwrap();
    let expected = fs::canonicalize("a.ours").unwrap();
    for resolve in [streams::real_path, streams::real_path_checked, streams::canonical_name] {
        printed(&Command::new("/bin/rm").arg("a.ours").env_remove("LD_PRELOAD").output().unwrap());
        assert_eq!(resolve("a.ours").unwrap(), expected.to_str().unwrap());
    }
    assert_eq!(streams::canonical_name("none.ours").unwrap_err().raw_os_error(), Some(libc::ENOENT));
}

/// What older C libraries find first under the name `realpath` makes no room for its answer.
#[test]
fn files_are_found_where_the_c_library_shows_its_old_realpath() {
    const OLD: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <stddef.h>\n\
        char *realpath(const char *path, char *result) {\n\
            char *(*next)(const char *, char *) = dlsym(RTLD_NEXT, \"realpath\");\n\
            if (result == NULL) { errno = EINVAL; return NULL; }\n\
            return next(path, result);\n\
        }\n";
    let Some(compiler) = installed("cc") else { return };
    let setup = Setup::new(&["*.ours"]);
    let (source, old) = (setup.directory.path().join("old.c"), setup.directory.path().join("old.so"));
    fs::write(&source, OLD).unwrap();
    printed(
        &Command::new(compiler)
            .args(["-shared", "-fPIC", "-o"])
            .args([&old, &source])
            .arg("-ldl")
            .output()
            .unwrap(),
    );
    fs::write(setup.files().join("a.ours"), "one\n").unwrap();
    let mut command = setup.command("/bin/sh");
    command
        .args(["-c", "echo two >> a.ours"])
        .env("LD_PRELOAD", format!("{}:{}", library().display(), old.display()));
    printed(&command.output().unwrap());
    assert!(fs::read(setup.files().join("a.ours")).unwrap().starts_with(b"TOMBOLO-PRELOAD 1 "));
    assert_eq!(content(&setup, "a.ours"), "one\ntwo\n");
}
