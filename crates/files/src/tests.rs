//! Files against a model of a file system: what reads give, what reopening finds, what a crash
//! leaves; and each rule by itself.

mod story;

use std::time::Duration;

use proptest::prelude::*;
use tombolo::{Db, Env, ErrorKind, Options, ReaderOptions, Result, TakeOver};
use tombolo_env::simulated::{Crash, World};

use crate::ahead::{AHEAD_BYTES_MAX, Ahead, WINDOW_BYTES_MAX};
use crate::door::{Claim, Door};
use crate::fuzzing::{TARGETS, seeds};
use crate::kind::FileKind;
use crate::rows::{self, Entry, Inode, Part, Tag};
use crate::{Ask, Files, FilesOptions};

fn builder(env: &Env) -> tombolo::Builder {
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap();
    Db::builder("file:///db").log("file:///db?form=written").env(env.clone()).options(options)
}

/// Nothing that is needed no more stays.
fn eager() -> FilesOptions {
    FilesOptions { unnamed_stay: Duration::ZERO, trim_bytes: 1, ..FilesOptions::default() }
}

async fn mount_with(env: &Env, options: FilesOptions) -> Result<Files> {
    let builder = builder(env).application_logs(2).take_over(TakeOver::Always);
    Files::mount(builder.open().await?, env, options).await
}

async fn mount(env: &Env) -> Result<Files> {
    mount_with(env, eager()).await
}

async fn write(files: &Files, path: &str, bytes: &[u8]) -> Result<()> {
    let file = files.create(path.as_bytes()).await?;
    files.append(&file, bytes).await?;
    files.finish(&file).await
}

async fn append(files: &Files, path: &str, bytes: &[u8]) -> Result<()> {
    let file = files.open_or_create(path.as_bytes()).await?;
    files.append(&file, bytes).await?;
    files.finish(&file).await
}

async fn sync(files: &Files, path: &str) -> Result<()> {
    files.sync(&files.open(path.as_bytes())?).await
}

async fn content(files: &Files, path: &str) -> Result<Vec<u8>> {
    let file = files.open(path.as_bytes())?;
    let bytes = files.read(&file, 0, u64::MAX).await?;
    assert_eq!(bytes.len() as u64, file.size());
    Ok(bytes.to_vec())
}

/// One life of a process after the other on one host, whose power goes after each.
struct Host(World);

impl Host {
    fn new() -> Host {
        Host::of(7)
    }

    fn of(seed: u64) -> Host {
        Host(World::new(seed))
    }

    fn live<F>(&self, life: impl FnOnce(Env) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let process = self.0.process("program");
        process.run(life(process.env())).unwrap().unwrap();
        self.0.host(0).power_loss();
    }
}

/// What was synced is there, of all kinds; a sync of one file makes all names durable.
#[test]
fn a_sync_makes_the_file_and_all_names_durable() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db/sub").await?;
        write(&files, "/db/1.sst", b"table").await?;
        write(&files, "/db/CURRENT", b"MANIFEST-1\n").await?;
        append(&files, "/db/2.log", b"one").await?;
        append(&files, "/db/2.log", b" two").await?;
        append(&files, "/db/MANIFEST-1", b"edit").await?;
        files.rename(b"/db/CURRENT", b"/db/sub/CURRENT").await?;
        sync(&files, "/db/2.log").await?;
        sync(&files, "/db/MANIFEST-1").await?;
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(content(&files, "/db/1.sst").await?, b"table");
        assert_eq!(content(&files, "/db/sub/CURRENT").await?, b"MANIFEST-1\n");
        assert_eq!(content(&files, "/db/2.log").await?, b"one two");
        assert_eq!(content(&files, "/db/MANIFEST-1").await?, b"edit");
        let mut names: Vec<_> = files.list(b"/db")?.into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, [&b"1.sst"[..], b"2.log", b"MANIFEST-1", b"sub"]);
        // What an earlier epoch left is appended to.
        append(&files, "/db/2.log", b" three").await?;
        sync(&files, "/db/2.log").await?;
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(content(&files, "/db/2.log").await?, b"one two three");
        assert_eq!(files.usage().of(FileKind::Log).bytes, 13);
        files.close().await
    });
}

/// An object whose name a crash brings back is there.
#[test]
fn a_deleted_object_stays_until_its_name_is_gone_for_good() {
    for seed in 0..16 {
        let host = Host::of(seed);
        host.live(|env| async move {
            let files = mount(&env).await?;
            files.create_directory(b"/db").await?;
            write(&files, "/db/1.sst", b"table").await?;
            sync(&files, "/db/1.sst").await?;
            files.delete(b"/db/1.sst").await?;
            assert_eq!(files.objects.list().await?.len(), 0);
            std::mem::forget(files);
            Ok(())
        });
        host.live(|env| async move {
            let files = mount(&env).await?;
            if files.exists(b"/db/1.sst") {
                assert_eq!(content(&files, "/db/1.sst").await?, b"table");
            }
            Ok(())
        });
    }
}

/// The lane is trimmed behind files that are gone, and never what another needs.
#[test]
fn a_lane_keeps_what_a_file_needs() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        append(&files, "/db/1.log", &[1; 5000]).await?;
        append(&files, "/db/2.log", &[2; 5000]).await?;
        append(&files, "/db/3.log", &[3; 5000]).await?;
        for path in [&b"/db/1.log"[..], b"/db/3.log"] {
            files.delete(path).await?;
        }
        sync(&files, "/db/2.log").await?;
        std::mem::forget(files);
        Ok(())
    });
    for _ in 0..3 {
        host.live(|env| async move {
            let files = mount(&env).await?;
            assert_eq!(content(&files, "/db/2.log").await?, [2; 5000]);
            assert!(!files.exists(b"/db/1.log"));
            files.close().await
        });
    }
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.delete(b"/db/2.log").await?;
        let mut left = files.db().application_log(0)?.earlier();
        assert!(left.next_async().await?.is_none(), "the lanes of earlier epochs are given up");
        files.close().await
    });
}

/// A log that was copied into an object goes on in the lane; it can be cut in either, and is the
/// same after each life.
#[test]
fn a_log_goes_on_behind_the_object_that_it_was_copied_into() {
    let host = Host::new();
    host.live(|env| async move {
        // The lane still has what was copied.
        let options = FilesOptions { trim_bytes: 1 << 20, ..eager() };
        let files = mount_with(&env, options).await?;
        files.create_directory(b"/db").await?;
        append(&files, "/db/1.log", b"0123456789").await?;
        files.spill(&files.open(b"/db/1.log")?).await?;
        assert_eq!(files.lane_memory.load(std::sync::atomic::Ordering::Relaxed), 0);
        append(&files, "/db/1.log", b"abcdef").await?;
        files.truncate(&files.open(b"/db/1.log")?, 13).await?;
        sync(&files, "/db/1.log").await?;
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(content(&files, "/db/1.log").await?, b"0123456789abc");
        let file = files.open(b"/db/1.log")?;
        assert_eq!(&files.read(&file, 8, 4).await?[..], b"89ab");
        files.truncate(&file, 4).await?;
        append(&files, "/db/1.log", b"xyz").await?;
        sync(&files, "/db/1.log").await?;
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(content(&files, "/db/1.log").await?, b"0123xyz");
        files.close().await
    });
}

/// Logs beyond their memory, and manifests beyond 4 MiB, are copied into objects by themselves.
#[test]
fn memory_holds_a_bounded_part_of_logs() {
    let host = Host::new();
    host.live(|env| async move {
        let options = FilesOptions { lane_memory_bytes: 2 << 20, manifest_bytes: 4096, ..eager() };
        let files = mount_with(&env, options).await?;
        files.create_directory(b"/db").await?;
        for _ in 0..10 {
            append(&files, "/db/1.log", &[7; 512 << 10]).await?;
            append(&files, "/db/MANIFEST-1", &[8; 1000]).await?;
        }
        let held = files.lane_memory.load(std::sync::atomic::Ordering::Relaxed);
        assert!(held <= 3 << 20, "{held}");
        assert_eq!(content(&files, "/db/1.log").await?, vec![7; 5 << 20]);
        assert_eq!(content(&files, "/db/MANIFEST-1").await?, [8; 10_000]);
        sync(&files, "/db/1.log").await?;
        sync(&files, "/db/MANIFEST-1").await?;
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(content(&files, "/db/1.log").await?, vec![7; 5 << 20]);
        assert_eq!(content(&files, "/db/MANIFEST-1").await?, [8; 10_000]);
        files.close().await
    });
}

/// A window of what was fetched ahead gives the bytes that a read gives, without a request; not
/// after the file was cut, and only while there is room.
#[test]
fn bytes_that_were_fetched_ahead_are_those_of_the_file() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
        write(&files, "/db/1.sst", &bytes).await?;
        let file = files.open(b"/db/1.sst")?;
        let (ahead, ask) = (Ahead::default(), Ask::default());
        assert!(ahead.begin(&files, &file, 1000, 50_000, ask));
        for (at, length, requests) in
            [(1000, 10, 0), (50_000, 1000, 0), (999, 2, 1), (50_999, 2, 1), (190_000, 50_000, 1)]
        {
            let (found, made) = ahead.read(&files, &file, at, length, ask).await?;
            let end = usize::try_from(at + length).unwrap().min(bytes.len());
            assert_eq!(&found[..], &bytes[usize::try_from(at).unwrap()..end]);
            assert_eq!(made, requests, "at {at}");
        }
        const { assert!(WINDOW_BYTES_MAX <= AHEAD_BYTES_MAX) };
        // Bytes that were cut and written anew are read anew.
        files.truncate(&file, 2000).await?;
        append(&files, "/db/1.sst", &[0xEE; 3000]).await?;
        assert_eq!(&ahead.read(&files, &file, 1990, 20, ask).await?.0[10..], [0xEE; 10]);
        // Windows are bounded together, and give their room back.
        files.ahead_bytes.store(AHEAD_BYTES_MAX - 4000, std::sync::atomic::Ordering::Relaxed);
        assert!(!ahead.begin(&files, &file, 0, 5000, ask));
        assert!(ahead.begin(&files, &file, 0, 4000, ask));
        assert!(!Ahead::default().begin(&files, &file, 0, 1, ask));
        assert!(ahead.begin(&files, &file, 0, 3000, ask));
        drop(ahead);
        let held = files.ahead_bytes.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(held, AHEAD_BYTES_MAX - 4000);
        files.close().await
    });
}

/// A read whose time is over ends, and says so.
#[test]
fn a_read_ends_by_its_deadline() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        write(&files, "/db/1.sst", &[1; 1000]).await?;
        let file = files.open(b"/db/1.sst")?;
        let ask = Ask { within: Some(Duration::ZERO), ..Ask::default() };
        let error = files.begin_read_as(&file, 0, 10, ask).end().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        let ask = Ask { within: Some(Duration::from_secs(3600)), ..Ask::default() };
        assert_eq!(&files.begin_read_as(&file, 0, 2, ask).end().await?[..], [1; 2]);
        files.close().await
    });
}

/// Objects that a row names stay at a mount, those of a process that ended in between go.
#[test]
fn a_mount_sweeps_what_no_row_names() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        write(&files, "/db/1.sst", &[1; 100_000]).await?;
        write(&files, "/db/large", &[2; 100_000]).await?;
        sync(&files, "/db/1.sst").await?;
        files.objects.put("nobody names it").await?;
        assert_eq!(files.objects.list().await?.len(), 3);
        std::mem::forget(files);
        Ok(())
    });
    host.live(|env| async move {
        let files = mount(&env).await?;
        assert_eq!(files.objects.list().await?.len(), 2);
        assert_eq!(content(&files, "/db/1.sst").await?, [1; 100_000]);
        assert_eq!(content(&files, "/db/large").await?, [2; 100_000]);
        files.close().await
    });
}

/// A directory has moved whole, or not at all, wherever the process ended.
#[test]
fn a_directory_moves_whole() {
    for number in 1..400 {
        let world = World::new(number);
        let process = world.process("program");
        process.crash_at_mutation(number, Crash::Kill);
        let env = process.env();
        let ended = process.run(async move {
            let files = mount(&env).await?;
            files.create_directory(b"/db/from").await?;
            write(&files, "/db/from/CURRENT", b"x").await?;
            append(&files, "/db/from/1.log", b"y").await?;
            files.rename(b"/db/from", b"/db/to").await?;
            std::mem::forget(files);
            Ok::<_, tombolo::Error>(())
        });
        process.kill();
        let next = world.process("successor");
        let env = next.env();
        next.run(async move {
            let files = mount(&env).await.unwrap();
            let moved = files.exists(b"/db/to");
            let inner = [&b"/db/from"[..], b"/db/from/CURRENT", b"/db/from/1.log"];
            assert!(!moved || inner.iter().all(|path| !files.exists(path)), "crash {number}");
            if moved {
                assert_eq!(content(&files, "/db/to/CURRENT").await.unwrap(), b"x");
                assert_eq!(content(&files, "/db/to/1.log").await.unwrap(), b"y");
            }
        })
        .unwrap();
        if matches!(ended, Some(Ok(()))) {
            return;
        }
    }
    panic!("it never came to its end");
}

/// What programs expect of names.
#[test]
fn names_are_those_of_a_file_system() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        let kind = |result: Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(write(&files, "/db/x", b"").await), ErrorKind::NotFound, "no directory");
        files.create_directory(b"db/").await?;
        assert_eq!(kind(files.create_directory(b"/db").await), ErrorKind::AlreadyExists);
        write(&files, "/db/x", b"first").await?;
        files.link(b"/db/x", b"/db/y").await?;
        assert_eq!(kind(files.link(b"/db/x", b"/db/y").await), ErrorKind::AlreadyExists);
        assert_eq!(files.open(b"/db/y")?.links(), 2);
        append(&files, "/db/y", b" second").await?;
        files.delete(b"/db/x").await?;
        assert_eq!(kind(files.delete(b"/db/x").await), ErrorKind::NotFound);
        assert_eq!(content(&files, "/db/y").await?, b"first second");
        files.rename(b"/db/y", b"/db/y").await?;
        assert_eq!(kind(files.delete_directory(b"/db").await), ErrorKind::AlreadyExists);
        assert_eq!(kind(files.rename(b"/db", b"/db/in").await), ErrorKind::Invalid);
        assert_eq!(kind(files.create_directory(b"/db/y/z").await), ErrorKind::Invalid);
        assert_eq!(kind(files.delete(b"/db").await), ErrorKind::Invalid);
        assert_eq!(kind(write(&files, "/db/../y", b"").await), ErrorKind::Invalid);
        // One that is open when it loses its name is read on.
        let open = files.open(b"/db/y")?;
        write(&files, "/db/z", b"other").await?;
        files.rename(b"/db/z", b"/db/y").await?;
        assert_eq!(&files.read(&open, 0, 5).await?[..], b"first");
        assert_eq!(content(&files, "/db/y").await?, b"other");
        files.truncate(&files.open(b"/db/y")?, 2).await?;
        files.truncate(&files.open(b"/db/y")?, 4).await?;
        assert_eq!(content(&files, "/db/y").await?, b"ot\0\0");
        files.delete(b"/db/y").await?;
        files.delete_directory(b"/db").await?;
        assert!(files.list(b"/")?.is_empty());
        files.close().await
    });
}

/// A follower sees durable changes only, changes nothing, and disturbs nobody.
#[test]
fn a_follower_sees_what_is_durable() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        write(&files, "/db/1.sst", b"table").await?;
        append(&files, "/db/2.log", b"one").await?;
        sync(&files, "/db/2.log").await?;
        let reader = builder(&env).open_reader(ReaderOptions::default()).await?;
        let seen = Files::follow(reader, &env, eager()).await?;
        assert_eq!(content(&seen, "/db/1.sst").await?, b"table");
        assert_eq!(content(&seen, "/db/2.log").await?, b"one");
        assert_eq!(seen.create(b"/db/x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let file = seen.open(b"/db/2.log")?;
        assert_eq!(seen.append(&file, b"x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        append(&files, "/db/2.log", b" two").await?;
        files.spill(&files.open(b"/db/2.log")?).await?;
        append(&files, "/db/2.log", b" three").await?;
        sync(&files, "/db/2.log").await?;
        assert_eq!(content(&seen, "/db/2.log").await?, b"one", "until it looks again");
        seen.refresh().await?;
        assert_eq!(content(&seen, "/db/2.log").await?, b"one two three");
        seen.close().await?;
        files.close().await
    });
}

/// The lane is trimmed between a follower's look at the rows and its look at the lanes: it looks
/// again, and shows no log without its bytes.
#[test]
fn a_follower_notices_that_a_lane_was_trimmed_meanwhile() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        for path in ["/db/1.log", "/db/2.log"] {
            append(&files, path, &[7; 5000]).await?;
            sync(&files, path).await?;
        }
        let reader = builder(&env).open_reader(ReaderOptions::default()).await?;
        let seen = Files::follow(reader, &env, eager()).await?;
        let reader = seen.reader.as_ref().unwrap();
        files.spill(&files.open(b"/db/1.log")?).await?;
        files.delete(b"/db/2.log").await?;
        assert_eq!(seen.load_followed(reader).await.unwrap_err().kind(), ErrorKind::Retry);
        seen.refresh().await?;
        assert_eq!(content(&seen, "/db/1.log").await?, [7; 5000]);
        assert!(!seen.exists(b"/db/2.log"));
        seen.close().await?;
        files.close().await
    });
}

/// A change waits for room while somebody else syncs: the sync of the one who made it covers it
/// nevertheless.
#[test]
fn a_sync_covers_a_change_that_waited_for_room() {
    for seed in 0..16 {
        let host = Host::of(seed);
        host.live(|env| async move {
            let files = mount(&env).await?;
            files.create_directory(b"/db").await?;
            let fill =
                files.db().open_or_create_keyspace("fill", tombolo::KeyspaceOptions::default()).await?;
            let mut waiting = Vec::new();
            for number in 0..200_u64 {
                let mut batch = tombolo::Batch::new();
                batch.put(&fill, number.to_be_bytes(), vec![0; 20_000]);
                let write = files.db().write_with(batch, tombolo::Durability::Accepted);
                waiting.extend(write.try_take().err());
            }
            {
                let mut change = std::pin::pin!(files.create_directory(b"/db/new"));
                {
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    assert!(change.as_mut().poll(&mut context).is_pending());
                }
                files.sync_names().await?;
                change.await?;
            }
            files.sync_names().await?;
            std::mem::forget(files);
            Ok(())
        });
        host.live(|env| async move {
            let files = mount(&env).await?;
            assert!(files.is_directory(b"/db/new"));
            files.close().await
        });
    }
}

/// What a file without a name gets still goes with its last handle; files that are open keep no
/// others from going.
#[test]
fn objects_of_unnamed_files_go_with_the_last_handle() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        files.create_directory(b"/db").await?;
        let table = files.create(b"/db/1.sst").await?;
        files.append(&table, b"table").await?;
        let log = files.create(b"/db/2.log").await?;
        files.append(&log, b"log").await?;
        files.delete(b"/db/1.sst").await?;
        files.delete(b"/db/2.log").await?;
        files.sync(&table).await?;
        files.spill(&log).await?;
        assert_eq!(&files.read(&table, 0, 9).await?[..], b"table");
        assert_eq!(&files.read(&log, 0, 9).await?[..], b"log");
        assert_eq!(files.objects.list().await?.len(), 2);
        drop((table, log));
        files.tidy().await?;
        assert_eq!(files.objects.list().await?.len(), 0);
        let mut open = Vec::new();
        for number in 0..70 {
            let path = format!("/db/{number}.sst");
            write(&files, &path, b"table").await?;
            open.extend((number < 65).then(|| files.open(path.as_bytes())).transpose()?);
            files.delete(path.as_bytes()).await?;
        }
        for _ in 0..3 {
            files.tidy().await?;
        }
        assert_eq!(files.objects.list().await?.len(), open.len());
        drop(open);
        files.close().await
    });
}

/// What ends a handle is never told as trouble that passes: who waits for its end would wait
/// forever.
#[test]
fn what_ends_a_handle_does_not_pass() {
    let host = Host::new();
    host.live(|env| async move {
        let files = mount(&env).await?;
        let passing: Result<()> = Err(tombolo::Error::new(ErrorKind::Retry, "later"));
        assert_eq!(files.noted(passing).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        let after = files.create_directory(b"/db").await.unwrap_err();
        assert_eq!(after.kind(), ErrorKind::OutcomeUnknown);
        assert!(after.to_string().contains("later"), "{after}");
        Ok(())
    });
}

/// The process that was taken over changes nothing more, and says why.
#[test]
fn a_fenced_process_never_harms() {
    let host = Host::new();
    host.live(|env| async move {
        let old = mount(&env).await?;
        old.create_directory(b"/db").await?;
        let log = old.create(b"/db/1.log").await?;
        old.append(&log, b"one").await?;
        old.sync(&log).await?;
        let new = mount(&env).await?;
        for kind in [
            old.sync(&log).await.err().or(old.append(&log, b"stale").await.err()),
            old.create(b"/db/2.log").await.err(),
            old.delete(b"/db/1.log").await.err(),
        ] {
            assert_eq!(kind.unwrap().kind(), ErrorKind::Fenced);
        }
        assert_eq!(old.failure().unwrap().kind(), ErrorKind::Fenced);
        assert_eq!(content(&new, "/db/1.log").await?, b"one");
        new.close().await
    });
}

/// A door claims with the first lock, and closes with the last; without one it only looks.
#[test]
fn a_door_claims_with_a_lock() {
    let directory = std::env::temp_dir().join(format!("tombolo-door-{}", Env::real().random_u64()));
    let uri = format!("file://{}", directory.display());
    let env = Env::real();
    let door = {
        let (uri, env) = (uri.clone(), env.clone());
        move || {
            let (uri, of_builder) = (uri.clone(), env.clone());
            Door::new(&env, eager(), TakeOver::Never, move || {
                Db::builder(uri.clone()).env(of_builder.clone())
            })
        }
    };
    let (first, second) = (door(), door());
    assert!(first.look().unwrap().is_none());
    assert_eq!(first.mounted().unwrap_err().kind(), ErrorKind::PermissionDenied);
    first.create_directory(b"/db").unwrap();
    assert_eq!(first.create_directory(b"/db").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(first.is_directory(b"/db").unwrap());
    first.lock(b"/db/LOCK").unwrap();
    assert_eq!(first.lock(b"/db/LOCK").unwrap_err().kind(), ErrorKind::InUse);
    assert_eq!(second.lock(b"/db/LOCK").unwrap_err().kind(), ErrorKind::InUse);
    let files = first.mounted().unwrap();
    env.block_on(append(&files, "/db/1.log", b"one")).unwrap();
    env.block_on(sync(&files, "/db/1.log")).unwrap();
    let seen = second.look().unwrap().unwrap();
    assert_eq!(env.block_on(content(&seen, "/db/1.log")).unwrap(), b"one");
    drop(files);
    first.unlock(b"/db/LOCK").unwrap();
    second.lock(b"/db/LOCK").unwrap();
    let files = second.mounted().unwrap();
    assert_eq!(env.block_on(content(&files, "/db/1.log")).unwrap(), b"one");
    drop((files, seen));
    second.unlock(b"/db/LOCK").unwrap();
    assert_eq!(second.unlock(b"/db/LOCK").unwrap_err().kind(), ErrorKind::NotFound);
    // One that claims with a change needs no lock, and keeps its claim after one.
    let third = door().claiming(Claim::WithChange);
    assert!(third.look().unwrap().unwrap().exists(b"/db/1.log"));
    third.create_directory(b"/restored").unwrap();
    assert_eq!(first.lock(b"/db/LOCK").unwrap_err().kind(), ErrorKind::InUse);
    third.lock(b"/restored/LOCK").unwrap();
    third.unlock(b"/restored/LOCK").unwrap();
    let files = third.mounted().unwrap();
    assert!(files.is_directory(b"/restored"));
    assert_eq!(first.lock(b"/db/LOCK").unwrap_err().kind(), ErrorKind::InUse);
    env.block_on(files.close()).unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn rows_come_back_and_others_are_refused() {
    let part = |random| Part { object: tombolo::ApplicationObject::from_parts(3, random), bytes: random };
    let tag = Tag { epoch: 4, number: 5 };
    for (kind, tag, parts, record) in [
        (FileKind::Record, Tag::default(), vec![], b"bytes".to_vec()),
        (FileKind::Record, Tag::default(), vec![part(1)], vec![]),
        (FileKind::Log, tag, vec![part(1), part(2)], vec![]),
        (FileKind::Object, Tag::default(), vec![], vec![]),
    ] {
        let inode = Inode { kind, modified_ms: 6, tag, parts, record };
        assert_eq!(Inode::decode(&[0; 8], &inode.encode()).unwrap(), inode);
        let mut newer = inode.encode();
        newer[0] = 2;
        assert_eq!(Inode::decode(&[0; 8], &newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let log =
        Inode { kind: FileKind::Log, modified_ms: 0, tag: Tag::default(), parts: vec![], record: vec![] };
    assert_eq!(Inode::decode(&[0; 8], &log.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    for number in [None, Some(7)] {
        assert_eq!(rows::name(b"/a", &rows::name_value(number)).unwrap(), number);
    }
    assert_eq!(rows::name(b"/a", &[2; 9]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(rows::name(b"/a", &[1; 8]).unwrap_err().kind(), ErrorKind::Corrupt);
    for path in [&b""[..], b"a", b"/", b"/a/", b"/a/../b"] {
        assert_eq!(rows::name(path, &rows::name_value(None)).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    for number in [0, u64::MAX] {
        let wrong = rows::inode_number(&rows::inode_key(number)).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::Corrupt);
    }
    for entry in [Entry::Append { tag, at: 9, bytes: b"x" }, Entry::Cut { tag, at: 9 }] {
        assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
    }
    assert_eq!(Entry::decode(&[1; 24]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(Entry::decode(&[9; 25]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Entry::decode(&[0xFF; 25]).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Sound inputs, cut and with a byte changed anywhere, and any bytes at all.
#[test]
fn decoders_take_any_bytes() {
    for (target, input) in seeds::all() {
        let (name, decode) = TARGETS[0];
        assert_eq!(name, target);
        decode(&input);
        for at in 0..input.len() {
            decode(&input[..at]);
            for change in [1, 0x80, 0xFF] {
                let mut changed = input.clone();
                changed[at] ^= change;
                decode(&changed);
            }
        }
    }
}

proptest! {
    #[test]
    fn decoders_take_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0_u8..3) {
        let mut row = bytes.clone();
        row.insert(0, version);
        for bytes in [&bytes, &row] {
            TARGETS[0].1(bytes);
        }
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn an_object_must_be_finished_before_it_is_named() {
        notices(Mutant::FilesObjectNamedUnfinished, super::story::crashes_leave_what_was_synced);
    }

    #[test]
    fn an_object_must_stay_while_a_durable_row_names_it() {
        notices(
            Mutant::FilesObjectDeletedWhileNamed,
            super::a_deleted_object_stays_until_its_name_is_gone_for_good,
        );
    }

    #[test]
    fn a_sync_must_make_names_durable() {
        notices(Mutant::FilesSyncForgetsNames, super::a_sync_makes_the_file_and_all_names_durable);
    }

    #[test]
    fn a_directory_must_move_in_one_batch() {
        notices(Mutant::FilesMovedInSteps, super::a_directory_moves_whole);
    }

    #[test]
    fn a_lane_must_not_be_trimmed_under_a_file() {
        notices(Mutant::FilesLaneTrimmedUnderFiles, super::a_lane_keeps_what_a_file_needs);
    }

    #[test]
    fn an_earlier_lane_must_stay_while_a_file_needs_it() {
        notices(Mutant::FilesEarlierLaneForgotten, super::a_lane_keeps_what_a_file_needs);
    }

    #[test]
    fn what_follows_a_copied_log_must_have_another_tag() {
        notices(Mutant::FilesSpilledTagKept, super::a_log_goes_on_behind_the_object_that_it_was_copied_into);
    }

    #[test]
    fn a_cut_must_end_a_window() {
        notices(Mutant::FilesWindowOutlivesCut, super::bytes_that_were_fetched_ahead_are_those_of_the_file);
    }

    #[test]
    fn a_sweep_must_leave_what_a_row_names() {
        notices(Mutant::FilesSweepForgetsNames, super::a_mount_sweeps_what_no_row_names);
    }
}
