//! The same calls with and without the library give the same answers. This test runs itself for
//! that.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::setup::{Setup, printed};

const SEED: &str = "PRELOAD_CALLS_SEED";
const STEPS: u64 = 400;
const NAMES: [&str; 5] = ["a.ours", "b.ours", "sub/c.ours", "a.theirs", "sub/d.theirs"];

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn length(&mut self) -> usize {
        let bounds = [10, 600, 5000, 40_000];
        let bound = bounds[self.below(4) as usize];
        self.below(bound) as usize
    }
}

/// An open file, and whether it was ours when it was opened: files that are renamed between the
/// database and the disk are not compared.
type Open = Option<File>;

fn told<T>(result: Result<T>, ok: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => ok(value),
        Err(error) => format!("{:?}", error.raw_os_error()),
    }
}

fn sum(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(17_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} bytes {sum:x}", bytes.len())
}

fn open_options(random: &mut Random) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(random.below(4) != 0).write(true);
    match random.below(6) {
        0 => options.write(true).create_new(true),
        1 => options.write(true).truncate(true),
        2 => options.append(true).create(true),
        3 => options.write(false).read(true),
        _ => options.create(true),
    };
    options
}

/// One call on one of the open files, or on a name.
fn step(random: &mut Random, files: &mut [Open; 4]) -> String {
    let slot = random.below(4) as usize;
    let name = NAMES[random.below(NAMES.len() as u64) as usize];
    let fill = random.below(250) as u8 + 1;
    if random.below(5) == 0 || files[slot].is_none() {
        let opened = open_options(random).open(name);
        let text = told(
            opened
                .as_ref()
                .map(|_| ())
                .map_err(|error| std::io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))),
            |()| "open".into(),
        );
        if let Ok(file) = opened {
            files[slot] = Some(file);
        }
        return format!("open {name} {text}");
    }
    match random.below(22) {
        0 => {
            let other = NAMES[random.below(3) as usize];
            let ours = NAMES[random.below(3) as usize];
            return format!("rename {ours} {other} {}", told(fs::rename(ours, other), |()| String::new()));
        }
        1 => return format!("unlink {name} {}", told(fs::remove_file(name), |()| String::new())),
        2 => {
            return format!(
                "stat {name} {}",
                told(fs::metadata(name), |metadata| format!("{} {}", metadata.len(), metadata.is_file()))
            );
        }
        3 => return format!("read all {name} {}", told(fs::read(name), |bytes| sum(&bytes))),
        4 => {
            let mut names: Vec<_> = fs::read_dir(".")
                .unwrap()
                .chain(fs::read_dir("sub").unwrap())
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            return format!("list {names:?}");
        }
        5 => {
            files[slot] = None;
            return "close".into();
        }
        6 => {
            let copy = files[slot].as_ref().unwrap().try_clone();
            let other = random.below(4) as usize;
            let text = told(copy.map(|copy| files[other] = Some(copy)), |()| "dup".into());
            return format!("{text} {slot} {other}");
        }
        7 => {
            let links = random.below(2);
            return format!(
                "lstat {name} {links} {}",
                told(fs::symlink_metadata(name), |metadata| metadata.len().to_string())
            );
        }
        8 => {
            let theirs = NAMES[3 + random.below(2) as usize];
            return format!(
                "write all {theirs} {}",
                told(fs::write(theirs, vec![fill; random.length()]), |()| String::new())
            );
        }
        _ => {}
    }
    let file = files[slot].as_mut().unwrap();
    let offset = random.length() as u64;
    let mut buffer = vec![0; random.length()];
    match random.below(12) {
        0..=2 => {
            format!("write {}", told(file.write(&vec![fill; buffer.len()]), |length| length.to_string()))
        }
        3 => format!(
            "pwrite {}",
            told(file.write_at(&vec![fill; buffer.len()], offset), |length| length.to_string())
        ),
        4 => {
            let parts = [vec![fill; 10], vec![fill + 1; buffer.len()], Vec::new(), vec![fill; 3]];
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            format!("writev {}", told(file.write_vectored(&slices), |length| length.to_string()))
        }
        5 => format!("read {}", told(file.read(&mut buffer), |length| sum(&buffer[..length]))),
        6 => format!("pread {}", told(file.read_at(&mut buffer, offset), |length| sum(&buffer[..length]))),
        7 => {
            let mut parts = [vec![0; 7], vec![0; buffer.len()]];
            let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            let text = told(file.read_vectored(&mut slices), |length| length.to_string());
            format!("readv {text} {}", sum(&parts.concat()))
        }
        8 => {
            let to = match random.below(3) {
                0 => SeekFrom::Start(offset),
                1 => SeekFrom::End(-(random.below(100) as i64)),
                _ => SeekFrom::Current(random.below(100) as i64 - 50),
            };
            format!("seek {to:?} {}", told(file.seek(to), |position| position.to_string()))
        }
        9 => format!("truncate {offset} {}", told(file.set_len(offset), |()| String::new())),
        10 => format!(
            "fstat {}",
            told(file.metadata(), |metadata| format!("{} {}", metadata.len(), metadata.is_file()))
        ),
        _ => format!("sync {}", told(file.sync_data(), |()| String::new())),
    }
}

/// Runs when this test is run by itself, with or without the library.
#[test]
fn calls_of_a_program() {
    let Ok(seed) = std::env::var(SEED) else { return };
    let mut random = Random(seed.parse().unwrap());
    fs::create_dir("sub").unwrap();
    let mut files = [None, None, None, None];
    let mut transcript = String::new();
    for number in 0..STEPS {
        writeln!(transcript, "{number}: {}", step(&mut random, &mut files)).unwrap();
    }
    drop(files);
    for name in NAMES {
        writeln!(transcript, "{name} {}", told(fs::read(name), |bytes| sum(&bytes))).unwrap();
    }
    fs::write("transcript.txt", transcript).unwrap();
}

/// More of them by hand: `PRELOAD_CALLS_FIRST=100 cargo test -p tombolo-preload calls_give`.
fn first_seed() -> u64 {
    std::env::var("PRELOAD_CALLS_FIRST").map_or(0, |first| first.parse().unwrap())
}

#[test]
fn calls_give_the_same_answers_with_and_without_the_library() {
    for seed in first_seed()..first_seed() + 20 {
        let setup = Setup::new(&["**/*.ours"]);
        let run = |mut command: std::process::Command, directory: &std::path::Path| {
            let command = command
                .args(["--exact", "calls::calls_of_a_program", "--test-threads", "1"])
                .env(SEED, seed.to_string());
            printed(&command.current_dir(directory).stdin(Stdio::null()).output().unwrap());
            fs::read_to_string(directory.join("transcript.txt")).unwrap()
        };
        let test = std::env::current_exe().unwrap();
        let with = run(setup.command(&test), &setup.files());
        let plain = tempfile::tempdir().unwrap();
        let without = run(std::process::Command::new(&test), plain.path());
        let before = with.lines().zip(without.lines()).take_while(|(with, without)| with == without).count();
        let shown =
            |text: &str| text.lines().skip(before.saturating_sub(30)).take(31).collect::<Vec<_>>().join("\n");
        assert!(
            with == without,
            "seed {seed}\nwith the library:\n{}\nwithout it:\n{}",
            shown(&with),
            shown(&without)
        );
        // On the disk only placeholders are left, and the next process reads what this one has
        // left.
        for name in NAMES.iter().filter(|name| name.ends_with(".ours")) {
            match fs::read(setup.files().join(name)) {
                Ok(bytes) => assert!(bytes.starts_with(b"TOMBOLO-PRELOAD 1 "), "{name}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
        for name in NAMES {
            let read = setup.command("/bin/cat").arg(name).output().unwrap();
            match fs::read(plain.path().join(name)) {
                Ok(bytes) => assert!(
                    read.status.success() && read.stdout == bytes,
                    "seed {seed}: {name} in the next process"
                ),
                Err(_) => assert!(
                    String::from_utf8_lossy(&read.stderr).contains("No such file"),
                    "seed {seed}: {name} is gone"
                ),
            }
        }
    }
}

#[test]
fn a_wrong_environment_ends_the_program_and_says_why() {
    let setup = Setup::new(&["*.ours"]);
    let output = setup.command("/bin/true").env_remove("TOMBOLO_PRELOAD_STORE").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("TOMBOLO_PRELOAD_STORE is not set"));
    let output = setup.command("/bin/true").env("TOMBOLO_PRELOAD_FILES", "relative/*").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no absolute path"));
}
