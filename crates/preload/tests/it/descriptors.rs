//! What a program does with descriptors and streams. Each test runs itself under the library.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::process::Output;

use crate::setup::{self, Setup, content, installed, is_program, printed};
use crate::streams::{self, UnclosedStream, duplicate_onto};

/// See [`setup::as_program`].
fn as_program(test: &str, setup: &Setup) -> Option<Output> {
    setup::as_program(&format!("descriptors::{test}"), setup)
}

#[test]
fn a_file_that_is_open_is_not_taken_over() {
    let setup = Setup::new(&["*.ours"]);
    if let Some(output) = as_program("a_file_that_is_open_is_not_taken_over", &setup) {
        assert!(String::from_utf8_lossy(&output.stderr).contains("while the program has it open"));
        assert_eq!(content(&setup, "a.ours"), "before and after");
        return;
    }
    let mut file = File::create("plain").unwrap();
    file.write_all(b"before").unwrap();
    assert_eq!(fs::rename("plain", "a.ours").unwrap_err().raw_os_error(), Some(libc::EBUSY));
    file.write_all(b" and after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename("plain", "a.ours").unwrap();
}

#[test]
fn a_duplicate_that_fails_leaves_its_target_open() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("a_duplicate_that_fails_leaves_its_target_open", &setup).is_some() {
        assert_eq!(content(&setup, "a.ours"), "text");
        return;
    }
    let (mut file, other) = (File::create("a.ours").unwrap(), File::create("plain").unwrap());
    assert_eq!(duplicate_onto(999, file.as_raw_fd(), None).unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(duplicate_onto(999, file.as_raw_fd(), Some(0)).unwrap_err().raw_os_error(), Some(libc::EBADF));
    let flagged = duplicate_onto(other.as_raw_fd(), file.as_raw_fd(), Some(libc::O_APPEND));
    assert_eq!(flagged.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    file.write_all(b"text").unwrap();
}

#[test]
fn a_stream_that_appends_makes_its_descriptor_append() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("a_stream_that_appends_makes_its_descriptor_append", &setup).is_some() {
        assert_eq!(content(&setup, "a.ours"), "one two");
        return;
    }
    fs::write("a.ours", "one").unwrap();
    let file = fs::OpenOptions::new().write(true).open("a.ours").unwrap();
    UnclosedStream::write(&file, "a", " two").close().unwrap();
}

#[test]
fn what_could_not_be_taken_over_can_be_tried_again() {
    let setup = Setup::new(&["*.ours"]);
    // More than the memory that its files may take.
    fs::write(setup.files().join("a.ours"), vec![b'a'; 5 << 20]).unwrap();
    if as_program("what_could_not_be_taken_over_can_be_tried_again", &setup).is_some() {
        assert_eq!(content(&setup, "b.ours"), "text");
        return;
    }
    for _ in 0..2 {
        assert_eq!(File::open("a.ours").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
    fs::write("b.ours", "text").unwrap();
}

#[test]
fn threads_that_take_the_same_file_over_find_it_once() {
    let setup = Setup::new(&["*.ours"]);
    let names: Vec<String> = (0..20).map(|number| format!("{number}.ours")).collect();
    if !is_program() {
        for name in &names {
            fs::write(setup.files().join(name), vec![b'a'; 10_000]).unwrap();
        }
    }
    if as_program("threads_that_take_the_same_file_over_find_it_once", &setup).is_some() {
        assert_eq!(content(&setup, "7.ours").len(), 10_000);
        return;
    }
    for name in &names {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    assert_eq!(fs::read(name).unwrap().len(), 10_000);
                });
            }
        });
    }
}

#[test]
fn a_stream_that_is_not_closed_is_written_when_the_program_exits() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("a_stream_that_is_not_closed_is_written_when_the_program_exits", &setup).is_some() {
        assert_eq!(content(&setup, "a.ours"), "text");
        return;
    }
    let file = File::create("a.ours").unwrap();
    UnclosedStream::write(&file, "w", "text");
    std::process::exit(0);
}

#[test]
fn temporary_files_are_in_the_database_when_a_pattern_matches() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("temporary_files_are_in_the_database_when_a_pattern_matches", &setup).is_some() {
        let names = fs::read_dir(setup.files())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (ours, others): (Vec<_>, Vec<_>) = names.partition(|name| name.ends_with(".ours"));
        assert_eq!((ours.len(), others.len()), (1, 1));
        assert!(fs::read(setup.files().join(&ours[0])).unwrap().starts_with(b"TOMBOLO-PRELOAD 1 "));
        assert_eq!(content(&setup, &ours[0]), "text");
        assert_eq!(fs::read_to_string(setup.files().join(&others[0])).unwrap(), "text");
        return;
    }
    for (template, suffix) in [("temporary-XXXXXX.ours", 5), ("temporary-XXXXXX", 0)] {
        let (mut file, name) = streams::temporary(template, suffix).unwrap();
        file.write_all(b"text").unwrap();
        assert_ne!(name, template);
        assert_eq!(fs::read_to_string(&name).unwrap(), "text");
    }
    assert_eq!(streams::temporary("no-place.ours", 5).unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn what_is_asked_of_a_file_is_not_answered_of_its_placeholder() {
    /// How a file lies on its disk, and zeros in a part of it.
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    const FS_IOC_ZERO_RANGE: libc::c_ulong = 0x4030_5839;
    const RWF_NOAPPEND: libc::c_int = 0x20;
    let setup = Setup::new(&["*.ours"]);
    if let Some(output) = as_program("what_is_asked_of_a_file_is_not_answered_of_its_placeholder", &setup) {
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("an ioctl of file systems is not supported")
        );
        assert_eq!(content(&setup, "a.ours"), "some text");
        return;
    }
    fs::write("a.ours", "some text").unwrap();
    let mut file = fs::OpenOptions::new().read(true).write(true).open("a.ours").unwrap();
    std::io::Read::read_exact(&mut file, &mut [0; 5]).unwrap();
    assert_eq!(streams::ask(&file, libc::FIONREAD).unwrap(), 4);
    for request in [FS_IOC_FIEMAP, FS_IOC_ZERO_RANGE] {
        assert_eq!(streams::ask(&file, request).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    assert_eq!(
        streams::write_flagged(&file, "TEXT", 5, RWF_NOAPPEND).unwrap_err().raw_os_error(),
        Some(libc::EOPNOTSUPP)
    );
    assert_eq!(streams::write_flagged(&file, "some", 0, libc::RWF_DSYNC).unwrap(), 4);
    // From where it is read next, and on the placeholder, which all who open the file have in
    // common.
    let is_locked = || {
        let (inode, locks) = (file.metadata().unwrap().ino(), fs::read_to_string("/proc/locks").unwrap());
        locks.lines().any(|line| line.contains("WRITE") && line.ends_with(&format!(":{inode} 5 8")))
    };
    for (command, locked) in
        [(libc::F_LOCK, true), (libc::F_TEST, true), (libc::F_ULOCK, false), (libc::F_TLOCK, true)]
    {
        streams::lock(&file, command, 4).unwrap();
        assert_eq!(is_locked(), locked, "{command}");
    }
    assert_eq!(streams::open_for_a_program("a.ours"), libc::EOPNOTSUPP);
    assert_eq!(streams::open_for_a_program("plain"), 0);
}

/// As `cp` makes a copy of a file that may only be read.
#[test]
fn who_makes_a_file_that_nobody_may_write_writes_it() {
    let (Some(setpriv), Some(cp)) = (installed("setpriv"), installed("cp")) else { return };
    let setup = Setup::new(&["*.ours"]);
    fs::write(setup.files().join("plain"), "text").unwrap();
    fs::set_permissions(setup.files().join("plain"), fs::Permissions::from_mode(0o444)).unwrap();
    // Not even for root, without this capability.
    let mut command = setup.command(setpriv);
    command
        .args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"])
        .arg(cp)
        .args(["plain", "a.ours"]);
    printed(&command.output().unwrap());
    assert_eq!(content(&setup, "a.ours"), "text");
}

#[test]
fn a_directory_whose_name_matches_is_a_directory() {
    let setup = Setup::new(&["*.ours"]);
    if as_program("a_directory_whose_name_matches_is_a_directory", &setup).is_some() {
        return;
    }
    fs::create_dir("a.ours").unwrap();
    let open = |name: &str, flags| {
        fs::OpenOptions::new().read(true).write(flags == libc::O_TMPFILE).custom_flags(flags).open(name)
    };
    open("a.ours", libc::O_PATH).unwrap();
    open("a.ours", libc::O_TMPFILE).unwrap();
    fs::write("b.ours", "text").unwrap();
    assert_eq!(open("b.ours", libc::O_PATH).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
}
