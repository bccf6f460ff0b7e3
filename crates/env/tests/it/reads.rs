//! Batched reads: what the page cache holds and what it does not, past it, from tasks and from
//! waiting threads.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::simulated::{Action, Fault, OperationKind, World};
use tombolo_env::{Access, Env, File, TaskClass};

use crate::worlds::each_world;

const LENGTH: usize = 1_000_003;

fn content() -> Vec<u8> {
    (0..LENGTH as u64).map(|index| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// A file with content, opened again in the ways that this world allows.
fn opened(env: &Env, directory: &Path) -> Vec<Arc<dyn File>> {
    let path = directory.join("file");
    let file = env.files().create_new(&path).unwrap();
    file.write_all_at(&content(), 0).unwrap();
    file.sync_data().unwrap();
    let mut files = vec![env.files().open(&path, Access::Read).unwrap()];
    match env.files().open(&path, Access::ReadDirect) {
        Ok(file) => files.push(file),
        Err(error) => println!("no direct reads here: {error}"),
    }
    files
}

/// Ranges of all kinds: aligned and not, short and long, over the end, beyond it, empty.
fn ranges() -> Vec<(u64, usize)> {
    let end = LENGTH as u64;
    let mut ranges = vec![
        (0, 4096),
        (4096, 8192),
        (1, 1),
        (4095, 2),
        (511, 513),
        (0, LENGTH),
        (0, LENGTH + 5000),
        (end - 10, 10),
        (end - 10, 100),
    ];
    ranges.extend([(end, 10), (end + 100_000, 10), (0, 0), (end, 0), (777, 0), (700_001, 299_999)]);
    ranges.extend(
        (0..60_u64).map(|number| ((number * 48_271) % end, usize::try_from(number * 131 % 9000).unwrap())),
    );
    ranges
}

fn expected(content: &[u8], (offset, length): (u64, usize)) -> &[u8] {
    let start = usize::try_from(offset).unwrap().min(content.len());
    &content[start..(start + length).min(content.len())]
}

#[test]
fn every_range_comes_back_in_its_place() {
    let content = content();
    each_world(|env, directory| {
        for file in opened(env, directory) {
            for batch in [ranges(), ranges()[..1].to_vec(), Vec::new()] {
                let results = env.block_on(Arc::clone(&file).read_many(batch.clone()));
                assert_eq!(results.len(), batch.len());
                for (range, result) in batch.into_iter().zip(results) {
                    assert!(result.unwrap() == expected(&content, range), "{range:?} of {file:?}");
                }
            }
            for range in ranges() {
                let mut buffer = vec![0; range.1];
                let count = file.read_at(&mut buffer, range.0).unwrap();
                assert!(buffer[..count] == *expected(&content, range), "{range:?} of {file:?}");
                let mut shown = None;
                let was_shown = file.with_held(range.0, range.1, &mut |held| shown = Some(held.to_vec()));
                assert_eq!(was_shown, shown.is_some(), "{range:?} of {file:?}");
                assert!(
                    shown.is_none_or(|shown| shown == *expected(&content, range)),
                    "{range:?} of {file:?}"
                );
                assert!(!was_shown || file.direct_alignment().is_none());
            }
        }
    });
}

#[test]
fn many_tasks_read_at_once_more_than_the_device_takes() {
    let content = Arc::new(content());
    each_world(|env, directory| {
        for file in opened(env, directory) {
            let tasks: Vec<_> = (0..40_u64)
                .map(|task| {
                    let (file, content) = (Arc::clone(&file), Arc::clone(&content));
                    env.spawn(TaskClass::Foreground, "reader", async move {
                        for round in 0..4 {
                            let batch: Vec<_> = (0..10)
                                .map(|number| {
                                    ((task * 7919 + round * 104_729 + number * 15_485) % 990_000, 5000)
                                })
                                .collect();
                            let results = Arc::clone(&file).read_many(batch.clone()).await;
                            for (range, result) in batch.into_iter().zip(results) {
                                assert!(result.unwrap() == expected(&content, range), "{range:?}");
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                assert_eq!(env.block_on(task), Some(()), "a reader panicked");
            }
        }
    });
}

#[test]
fn what_is_given_up_does_no_harm() {
    each_world(|env, directory| {
        for file in opened(env, directory) {
            for round in 0..50_u64 {
                let mut reading =
                    Arc::clone(&file).read_many(vec![(round * 4096, 4096), (round * 8192, 100_000)]);
                if round % 3 > 0 {
                    // Begun, and dropped in the middle.
                    let begun = async {
                        std::future::poll_fn(|context| {
                            std::task::Poll::Ready(reading.as_mut().poll(context).is_ready())
                        })
                        .await
                    };
                    env.block_on(begun);
                }
            }
            drop(file);
        }
        // A wait with a deadline that has passed begins nothing that it would have to stay for.
        let file = opened(env, &{
            let fresh = directory.join("fresh");
            env.files().create_directories(&fresh).unwrap();
            fresh
        })
        .pop()
        .unwrap();
        let outcome = env.block_on_until(
            Arc::clone(&file).read_many(vec![(0, 4096)]),
            env.now() + Duration::from_secs(30),
        );
        assert!(outcome.is_some_and(|results| results[0].is_ok()));
    });
}

#[test]
fn writes_past_the_page_cache_are_aligned_or_refused() {
    each_world(|env, directory| {
        let path = directory.join("written");
        env.files().create_new(&path).unwrap();
        let Ok(file) = env.files().open(&path, Access::ReadWriteDirect) else { return };
        let align = file.direct_alignment().unwrap();
        let bytes = content();
        file.write_all_at(&bytes[1..=align * 3], 0).unwrap();
        file.write_all_at(&bytes[5..align + 5], align as u64 * 3).unwrap();
        assert_eq!(file.write_all_at(&bytes[..align], 1).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.write_all_at(&bytes[..100], 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        file.set_length(align as u64 * 3 + 100).unwrap();
        let mut read = vec![0; align * 4];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), align * 3 + 100);
        assert!(
            read[..align * 3] == bytes[1..=align * 3] && read[align * 3..align * 3 + 100] == bytes[5..105]
        );
        assert_eq!(env.files().open(&path, Access::Read).unwrap().direct_alignment(), None);
    });
}

#[test]
fn an_error_of_the_device_reaches_its_range_alone() {
    let world = World::new(3);
    let process = world.process("reader");
    let directory = Path::new("/data");
    process.files().create_directories(directory).unwrap();
    let file = opened(&process.env(), directory).remove(0);
    world.inject(Fault::new(Action::Fail(ErrorKind::Other), |operation| {
        operation.kind == OperationKind::Read && operation.offset == 4096
    }));
    let results = process.run(file.read_many(vec![(0, 10), (4096, 10), (8192, 10)])).unwrap();
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn batches_are_answered_in_every_order() {
    // In a simulated world: a reader that counts on the order of answers is found out.
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed);
        let process = world.process("reader");
        process.files().create_directories(Path::new("/data")).unwrap();
        let file = opened(&process.env(), Path::new("/data")).remove(0);
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        world.inject(
            Fault::new(Action::Stall(Duration::from_nanos(1)), move |operation| {
                if operation.kind == OperationKind::Read {
                    noted.lock().unwrap().push(operation.offset);
                }
                false
            })
            .always(),
        );
        process.run(file.read_many(vec![(0, 10), (4096, 10), (8192, 10)])).unwrap();
        orders.insert(seen.lock().unwrap().clone());
    }
    assert_eq!(orders.len(), 6, "{orders:?}");
}

#[test]
fn the_way_of_reading_is_told() {
    assert!(Env::real_without_io_uring().files().io_uring().is_err());
    assert_eq!(Env::real().files().io_uring().is_ok(), Env::real().host_facts().io_uring.is_ok());
}
