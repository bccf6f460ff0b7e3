//! What shells do with files: children, redirections, several processes.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::setup::{Setup, installed, printed};

#[test]
fn what_was_written_without_a_sync_is_there_when_the_program_ended_by_itself() {
    let setup = Setup::new(&["*.ours"]);
    printed(
        &setup.command("/bin/sh").args(["-c", "echo one > a.ours; echo two >> a.ours"]).output().unwrap(),
    );
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "one\ntwo\n");
}

#[test]
fn a_forked_child_is_refused_and_nothing_is_written_to_the_placeholder() {
    let Some(bash) = installed("bash") else { return };
    let setup = Setup::new(&["*.ours"]);
    let script = "echo parent > a.ours; (echo child >> a.ours) || echo refused; echo parent >> a.ours";
    let output = setup.command("/bin/sh").args(["-c", script]).output().unwrap();
    assert_eq!(printed(&output), "refused\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it gets EIO"));
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "parent\nparent\n");
    // The C library's own streams write past this library when a shell redirects them: that fails,
    // and nothing is written.
    let output = setup.command(&bash).args(["-c", "echo text > a.ours || echo refused"]).output().unwrap();
    assert_eq!(printed(&output), "refused\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Bad file descriptor"));
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "");
}

/// Shells start programs by `vfork`, in their own memory, and redirect there.
#[test]
fn what_a_started_program_is_given_changes_nothing_here() {
    let setup = Setup::new(&["*.ours"]);
    let script = "echo one > a.ours; /bin/echo two > b.ours || echo refused; echo three";
    for shell in ["/bin/sh", "/bin/bash"] {
        let output = setup.command(shell).args(["-c", script]).output().unwrap();
        assert_eq!(printed(&output), "refused\nthree\n", "{shell}");
    }
}

#[test]
fn a_program_cannot_close_what_the_database_uses() {
    let setup = Setup::new(&["*.ours"]);
    // A shell that closes all that it could have open, and what the database has among it.
    let output = setup
        .command("/bin/sh")
        .args(["-c", "echo one > a.ours; exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; echo two >> a.ours"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("that the database uses"));
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "one\ntwo\n");
}

#[test]
fn a_program_that_is_started_meanwhile_is_refused() {
    let setup = Setup::new(&["*.ours"]);
    let script = "echo text > a.ours; /bin/cat a.ours || echo refused; read line < a.ours; echo $line";
    let output = setup.command("/bin/sh").args(["-c", script]).output().unwrap();
    assert_eq!(printed(&output), "refused\ntext\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("one at a time may"));
}

/// Where any directory may have files, all that is missing could be one: the process that has the
/// files open has put those directories right.
#[test]
fn a_program_that_is_started_meanwhile_is_told_what_is_not_there() {
    let setup = Setup::new(&["**/*.ours"]);
    let script = "echo text > a.ours; /bin/cat missing.conf; /bin/ls; echo end";
    let output = setup.command("/bin/sh").args(["-c", script]).output().unwrap();
    assert_eq!(printed(&output), "a.ours\nend\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing.conf: No such file"));
}

/// Runs a script that says when it has come so far and then waits for a line.
fn begin(setup: &Setup, script: &str) -> (std::process::Child, String) {
    let mut child = setup
        .command("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    // Byte by byte: the thread that waits for the end reads the rest.
    while !said.ends_with('\n') {
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(char::from(byte[0]));
    }
    (child, said)
}

/// What it has said since, once it was given that line.
fn end(mut child: std::process::Child) -> String {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    printed(&child.wait_with_output().unwrap())
}

/// What it was told to be missing may be in the database: once nobody has the files open, it would
/// put new ones in their place.
#[test]
fn a_program_that_has_looked_beside_another_does_not_begin_anew_after_it() {
    let setup = Setup::new(&["**/*.ours"]);
    let (holder, _) = begin(&setup, "echo text > a.ours; echo ready; read line");
    let (other, said) = begin(
        &setup,
        "[ -e missing ] || echo missing; read line; { echo new > a.ours; } 2> /dev/null || echo refused",
    );
    assert_eq!(said, "missing\n");
    end(holder);
    assert_eq!(end(other), "refused\n");
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "text\n");
}

#[test]
fn a_program_that_is_started_meanwhile_renames_no_directory_of_files() {
    for pattern in ["d/*.ours", "d/a.ours"] {
        let setup = Setup::new(&[pattern]);
        std::fs::create_dir(setup.files().join("d")).unwrap();
        let script = "echo text > d/a.ours; /bin/mv d e || echo refused; read line < d/a.ours; echo $line";
        let output = setup.command("/bin/sh").args(["-c", script]).output().unwrap();
        assert_eq!(printed(&output), "refused\ntext\n", "{pattern}");
    }
}

#[test]
fn a_program_whose_standard_error_is_full_goes_on() {
    let setup = Setup::new(&["*.ours"]);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    std::fs::write(setup.files().join("a.ours"), "text").unwrap();
    // The message says that the file was taken over.
    let output = setup.command("/bin/cat").arg("a.ours").stderr(full()).output().unwrap();
    assert_eq!(printed(&output), "text");
    let output =
        setup.command("/bin/true").env_remove("TOMBOLO_PRELOAD_STORE").stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
}

#[test]
fn files_of_another_database_and_both_at_once_are_refused() {
    let setup = Setup::new(&["*.ours"]);
    printed(&setup.command("/bin/sh").args(["-c", "echo text > a.ours"]).output().unwrap());
    let other = format!("{}-other", setup.store());
    let output =
        setup.command("/bin/cat").arg("a.ours").env("TOMBOLO_PRELOAD_STORE", other).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("another database"));
    // Somebody has put another file in the placeholder's place.
    std::fs::write(setup.files().join("a.ours"), "different").unwrap();
    let output = setup.command("/bin/cat").arg("a.ours").output().unwrap();
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("move one of them away")
    );
    // The same content is what a process leaves that ends while it takes a file over.
    std::fs::write(setup.files().join("a.ours"), "text\n").unwrap();
    assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "text\n");
    assert!(std::fs::read(setup.files().join("a.ours")).unwrap().starts_with(b"TOMBOLO-PRELOAD 1 "));
}

#[test]
fn programs_list_copy_and_move_files() {
    let setup = Setup::new(&["*.ours"]);
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        printed(&setup.command(words[0]).args(&words[1..]).output().unwrap())
    };
    std::fs::write(setup.files().join("plain"), "a plain file\n").unwrap();
    run("/bin/cp plain a.ours");
    run("/bin/mv a.ours b.ours");
    assert_eq!(run("/bin/ls"), "b.ours\nplain\n");
    assert_eq!(run("/usr/bin/stat -c %s b.ours"), "13\n");
    run("/bin/cp b.ours copy");
    assert_eq!(std::fs::read_to_string(setup.files().join("copy")).unwrap(), "a plain file\n");
    // From the database to the disk and back, as between file systems.
    run("/bin/mv b.ours moved");
    assert_eq!(std::fs::read_to_string(setup.files().join("moved")).unwrap(), "a plain file\n");
    run("/bin/mv moved c.ours");
    assert_eq!(run("/usr/bin/head -c 7 c.ours"), "a plain");
    run("/bin/rm c.ours");
    assert_eq!(run("/bin/ls"), "copy\nplain\n");
}

#[test]
fn a_directory_is_found_and_listed_before_any_file_is_asked_for() {
    let setup = Setup::new(&["sub/*", "deep/**/*.ours"]);
    for directory in ["sub", "deep/er"] {
        std::fs::create_dir_all(setup.files().join(directory)).unwrap();
    }
    let write = "echo text > sub/a; echo text > deep/er/b.ours";
    printed(&setup.command("/bin/sh").args(["-c", write]).output().unwrap());
    // As on another machine: without the directories, or with empty ones.
    let lost = |kept: &[&str]| {
        for directory in ["sub", "deep"] {
            let _gone = std::fs::remove_dir_all(setup.files().join(directory));
        }
        for directory in kept {
            std::fs::create_dir(setup.files().join(directory)).unwrap();
        }
    };
    for kept in [&[][..], &["sub", "deep"]] {
        for (words, expected) in [
            (["/bin/ls", "sub"], "a\n"),
            (["/bin/ls", "deep"], "er\n"),
            (["/bin/cat", "sub/a"], "text\n"),
            (["/bin/cat", "deep/er/b.ours"], "text\n"),
        ] {
            lost(kept);
            assert_eq!(
                printed(&setup.command(words[0]).arg(words[1]).output().unwrap()),
                expected,
                "{words:?}, {kept:?}"
            );
        }
    }
    lost(&[]);
    assert_eq!(
        printed(&setup.command("/usr/bin/stat").args(["-c", "%F", "sub"]).output().unwrap()),
        "directory\n"
    );
    lost(&[]);
    let made = setup.command("/bin/mkdir").arg("sub").output().unwrap();
    assert!(!made.status.success() && String::from_utf8_lossy(&made.stderr).contains("File exists"));
    lost(&[]);
    printed(&setup.command("/bin/sh").args(["-c", "cd sub"]).output().unwrap());
}

/// A loss of power leaves of a placeholder that was just made an empty file, or a part of it; the
/// end of a process that has just taken a file over leaves the file.
#[test]
fn a_placeholder_that_was_not_finished_is_written_again() {
    let setup = Setup::new(&["*.ours"]);
    printed(&setup.command("/bin/sh").args(["-c", "echo text > a.ours"]).output().unwrap());
    let path = setup.files().join("a.ours");
    // More than the usual mask leaves a new file.
    for (left, mode) in [("", 0o600), ("TOMBOLO-PR", 0o666), ("TOMBOLO-PRELOAD 1 ", 0o640), ("text\n", 0o600)]
    {
        std::fs::write(&path, left).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            printed(&setup.command("/usr/bin/stat").args(["-c", "%s %a", "a.ours"]).output().unwrap()),
            format!("5 {mode:o}\n")
        );
        assert_eq!(printed(&setup.command("/bin/cat").arg("a.ours").output().unwrap()), "text\n", "{left:?}");
        assert!(std::fs::read(&path).unwrap().len() > 50);
    }
}

/// A network namespace has its own names of local sockets: to the library its processes are another
/// machine's.
#[test]
fn a_fenced_process_destroys_no_ordinary_file() {
    let (Some(perl), Some(unshare)) = (installed("perl"), installed("unshare")) else { return };
    if !std::process::Command::new(&unshare).args(["-n", "true"]).output().unwrap().status.success() {
        eprintln!("skipped: this user cannot make a network namespace");
        return;
    }
    let setup = Setup::new(&["*.ours"]);
    for name in ["1.ours", "2.ours"] {
        std::fs::write(setup.files().join(name), "old").unwrap();
    }
    std::fs::write(setup.files().join("plain"), "new").unwrap();
    let script = "open F, '>', 'new.ours'; print F 'new'; close F; $| = 1; print qq(ready\n); <STDIN>; \
                  print rename($_->[0], $_->[1]) ? 'renamed ' : 'refused ' for ['new.ours', '1.ours'], \
                  ['plain', '2.ours'];";
    let mut first = setup
        .command(perl)
        .args(["-e", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let other = setup.command(&unshare).args(["-n", "/bin/cat", "none.ours"]).output().unwrap();
    assert!(String::from_utf8_lossy(&other.stderr).contains("No such file"));
    drop(first.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "refused refused ");
    first.wait().unwrap();
    for name in ["1.ours", "2.ours"] {
        assert_eq!(printed(&setup.command("/bin/cat").arg(name).output().unwrap()), "old", "{name}");
    }
}

#[test]
fn symbolic_links_whose_names_match_are_links() {
    let setup = Setup::new(&["*.ours", "linked/*"]);
    let run = |script: &str| setup.command("/bin/sh").args(["-c", script]).output().unwrap();
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(target, setup.files().join(name)).unwrap();
    let on_disk = |name: &str| std::fs::read(setup.files().join(name)).unwrap();
    // One that leads nowhere yet: the file is made where it leads.
    link("1.ours", "current.ours");
    let excluded = run("set -C; echo text > current.ours");
    assert!(!excluded.status.success() && std::fs::symlink_metadata(setup.files().join("1.ours")).is_err());
    printed(&run("echo text > current.ours"));
    assert!(on_disk("1.ours").starts_with(b"TOMBOLO-PRELOAD 1 "));
    assert_eq!(printed(&run("cat 1.ours; cat current.ours")), "text\ntext\n");
    assert_eq!(
        printed(&setup.command("/usr/bin/stat").args(["-c", "%F", "current.ours"]).output().unwrap()),
        "symbolic link\n"
    );
    // Moving and removing are about the link.
    printed(&setup.command("/bin/mv").args(["current.ours", "newest.ours"]).output().unwrap());
    assert_eq!(
        std::fs::read_link(setup.files().join("newest.ours")).unwrap(),
        std::path::Path::new("1.ours")
    );
    printed(&setup.command("/bin/rm").arg("newest.ours").output().unwrap());
    assert!(std::fs::symlink_metadata(setup.files().join("newest.ours")).is_err());
    assert_eq!(printed(&run("cat 1.ours")), "text\n");
    // A file that is renamed to a link takes its place.
    link("1.ours", "old.ours");
    printed(&run("echo other > 2.ours"));
    printed(&setup.command("/bin/mv").args(["2.ours", "old.ours"]).output().unwrap());
    assert_eq!(printed(&run("cat old.ours 1.ours")), "other\ntext\n");
    // A pattern whose directory is a link.
    std::fs::create_dir(setup.files().join("real")).unwrap();
    link("real", "linked");
    printed(&run("echo text > linked/a"));
    assert!(on_disk("real/a").starts_with(b"TOMBOLO-PRELOAD 1 "));
}
